"""Disks that refuse run files, while they are written, given up and published."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from tests.unit.index_assigner.full_disk import created_on_full_disk
from tests.unit.index_assigner.index.test_room_on_disk import IN_ORDER, NEW, allow, look, opened
from tests.unit.index_assigner.index.test_room_on_disk import table as table_of_ranges
from tests.unit.index_assigner.index_world import BIG, MANY, DataTable, load_runs
from tidemark.index_assigner.runs.files import RunFolder
from tidemark.index_assigner.runs.loading import SteppedLoads

ranges = table_of_ranges
FEW = list(MANY)[:100]


def test_a_load_that_is_given_up_on_a_full_disk_ends_nothing_but_itself(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewind gives it up, with bytes in memory that the disk has not seen yet."""
    loads, table = SteppedLoads(), DataTable(shards=1)
    table.commit_rows({key: MANY[key] for key in FEW})
    table.compact_index(clean=True)
    one = assigners(table, loads=loads).open(table.known())
    with monkeypatch.context() as full:
        full.setattr(RunFolder, "create", created_on_full_disk)
        one.ask(FEW[:2])
        one.ask(FEW[2:])
        assert loads.is_busy
        one.index.rewind()
    assert list((one.folder / "runs").iterdir()) == []
    one.open(table.known())
    load_runs(one, FEW)


@pytest.mark.parametrize("step", ["rename", "sync"])
def test_a_run_whose_publication_the_disk_refused_leaves_no_part_and_what_has_the_name_serves(
    assigners, ranges, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Half of the shard is in a file of the same name already."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    one = opened(assigners, ranges, 0.5)
    look(one, NEW, 8)
    held = one.index.stats()["run_entries"]
    allow(one, 1 << 30)
    with monkeypatch.context() as full:
        if step == "rename":
            full.setattr(os, "replace", refuse)
        else:
            full.setattr(RunFolder, "_sync", refuse)
        look(one, IN_ORDER[::10], 6)
    stats = one.index.stats()
    assert [path.suffix for path in (one.folder / "runs").iterdir()] == [".run"]
    assert stats["runs_loaded"] == 1
    assert stats["run_entries"] == (held if step == "rename" else len(BIG))
    assert look(one, IN_ORDER[::10], 30) == 1


def test_a_run_that_is_set_aside_as_soon_as_it_is_published_is_not_counted_as_loaded(
    assigners, ranges, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk lost some of what was written."""
    publish = RunFolder.publish

    def torn(folder: RunFolder, name: str) -> None:
        publish(folder, name)
        os.truncate(folder.path / f"{name}.run", 100)

    one = opened(assigners, ranges, 4)
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "tidemark.assigner"):
        patched.setattr(RunFolder, "publish", torn)
        while not one.index.stats()["runs_damaged"]:
            look(one, IN_ORDER)
    assert one.index.stats()["runs_loaded"] == 0
    assert "are in a run file" not in caplog.text
    assert look(one, IN_ORDER, 8) == 1
