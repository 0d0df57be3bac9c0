"""Another index is added to a table whose timelines were archived: the metadata table's timeline begins anew
there, and every base file that readers use has to count still.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.unit.commit_coordinator.table_services.archived_bases import (
    BUILT,
    assert_instants_are_whole,
    build_of_another_index,
    updated_alone,
)
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    ARCHIVE,
    active,
    archived,
    compacted_and_written_on,
)
from tidemark.commit_coordinator.table_services import archivals
from tidemark.commit_coordinator.table_services.index_slices import under_slices
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.metadata_table.archived_bases import put_back_bases
from tidemark.hudi_format.metadata_table.index_creation import complete_build, next_build_instant
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import (
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    Timeline,
    load_timeline,
)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Story:
    base = tmp_path_factory.mktemp("archive")
    return compacted_and_written_on(Story(base / "made").copy(base / "t"))


@pytest.fixture
def story(compacted: Story, tmp_path: Path) -> Story:
    return compacted.copy(tmp_path / "t")


def test_another_index_may_be_added_behind_our_archival(story: Story) -> None:
    assert story.served.act(ARCHIVE)
    assert story.served.act(ARCHIVE)
    build_of_another_index(story)
    story.check()


def shard_of(n: int) -> int:
    return int(record_index_shard(pa.array([f"k{n}"]), 2)[0])


def test_another_index_may_be_added_where_a_shard_was_not_written_to_for_several_compactions(
    story: Story,
) -> None:
    """Its base file is of an older compaction than those of the others, which stays on the timeline."""
    busy = (n for n in range(100, 200) if shard_of(n) == 0)
    for _ in range(3):
        story.commit((next(busy),))
        story.commit((next(busy),))
        assert story.served.act(ServiceKind.COMPACT_INDEX)
    while story.served.act(ARCHIVE):
        pass
    build_of_another_index(story)
    story.check()


def test_old_partitions_of_a_divided_index_hold_nothing_back() -> None:
    old, new = (f"2026010100000{n}000" for n in (1, 2))
    made = tuple(Instant(time, Action.COMPACTION, State.COMPLETED, f"{time[:-1]}9") for time in (old, new))
    files = {
        "files": [f"files-0000-0_0-0-0_{time}.hfile" for time in (old, new)],
        "record_index": [f"record-index-us-0000-0_0-0-0_{old}.hfile"],
    }
    validity = InstantValidity(Timeline(()), Timeline(made))
    assert under_slices(files, validity) == {new}
    files["record_index"] = [f"record-index-0001-0_0-0-0_{old}.hfile"]
    assert under_slices(files, validity) == {old, new}


def test_our_own_build_of_an_index_keeps_base_files_whose_instants_are_archived(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are updated alone for so long that the compaction of the record index went to the archive."""
    monkeypatch.setattr(archivals, "under_slices", lambda *_: set())
    updated_alone(story)
    storage, before = story.storage, active(story, METADATA_TABLE_ROOT)
    names = storage.names(RECORD_INDEX_FOLDER)
    assert not any(instant in name for name in names if ".hfile" in name for instant in before)
    build = next_build_instant(storage, load_timeline(storage, METADATA_TABLE_ROOT))
    story.forget_coordinator()
    died = story.copy(tmp_path / "died")
    story.serve()
    put_back_bases(died.storage, build)
    died.check()
    complete_build(died.storage, build, story.writer._instants.next())
    died.check_readers()
    complete_build(storage, build, story.writer._instants.next())
    story.check()
    back = set(active(story, METADATA_TABLE_ROOT)) - {*before, build}
    assert back
    assert load_timeline(storage, METADATA_TABLE_ROOT).pending() == ()
    for n in (100, 102):
        story.commit((n, n + 1))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    while story.served.act(ARCHIVE):
        pass
    assert not {*back, build} & set(active(story, METADATA_TABLE_ROOT)), "they go with the next archival"
    story.check()


class DiesAt:
    """The storage, until so many files were made."""

    def __init__(self, inner: Storage, files: int) -> None:
        self._inner, self._left = inner, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, data: bytes) -> None:
        if not self._left:
            raise OSError("killed")
        self._left -= 1
        self._inner.create(path, data)


def test_a_build_that_is_killed_while_it_puts_several_instants_back_is_repeated(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base files of the two shards are of different compactions, both archived."""
    monkeypatch.setattr(archivals, "under_slices", lambda *_: set())
    fresh = (
        next(n for n in range(start, 999) if shard_of(n) == shard) for shard, start in ((0, 100), (1, 300))
    )
    for n in fresh:
        story.commit((n,))
        story.commit((n + 1_000,) if shard_of(n + 1_000) == shard_of(n) else (n,))
        assert story.served.act(ServiceKind.COMPACT_INDEX)
    updated_alone(story)
    build = next_build_instant(story.storage, load_timeline(story.storage, METADATA_TABLE_ROOT))
    story.forget_coordinator()
    files, is_whole = 0, False
    while not is_whole:
        died = story.copy(tmp_path / f"died-{files}")
        with suppress(OSError):
            put_back_bases(cast(Storage, DiesAt(died.storage, files)), build)
            is_whole = True
        died.check_readers()
        complete_build(died.storage, build, died.writer._instants.next())
        died.check()
        assert_instants_are_whole(died.storage)
        files += 1
    assert files > 6, "two instants at least were put back"


def test_a_sweep_deletes_nothing_behind_an_index_that_was_built_meanwhile(story: Story) -> None:
    """Else the timeline would begin at the build's instant, and the compactions before count no more."""
    story.commit((2, 32))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    both = set[str]()
    while not both:
        assert story.served.plan(ARCHIVE)
        assert story.served.decide(ARCHIVE)
        both = set(archived(story, METADATA_TABLE_ROOT)) & set(active(story, METADATA_TABLE_ROOT))
        if not both:
            story.served.sweep(ARCHIVE)
    build_of_another_index(story)
    story.served.sweep(ARCHIVE)
    assert both < set(active(story, METADATA_TABLE_ROOT))
    story.check()
    while story.served.act(ARCHIVE):
        pass
    assert BUILT not in active(story, METADATA_TABLE_ROOT)
    story.check()


def test_an_archival_is_planned_again_where_an_index_was_built_meanwhile(story: Story) -> None:
    """The build's instant is older than all that is planned: it would be the start of what is left."""
    story.commit((2, 32))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    while not story.served.act(ARCHIVE):
        pass
    assert story.served.plan(ARCHIVE)
    build_of_another_index(story)
    assert not story.served.decide(ARCHIVE)
    assert "which is older, was written meanwhile" in story.served.dropped
    assert BUILT not in archived(story, METADATA_TABLE_ROOT)
    assert story.served.act(ARCHIVE)
    assert BUILT in archived(story, METADATA_TABLE_ROOT)
    story.check()


def test_without_the_newest_compaction_another_index_would_make_the_table_unreadable(story: Story) -> None:
    """Why the planner leaves it (design: counterexample 13)."""
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    story.commit((2, 32))
    assert story.served.act(ARCHIVE)
    assert story.served.act(ARCHIVE)
    compaction = load_timeline(story.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)[-1]
    for name in story.storage.names(f"{METADATA_TABLE_ROOT}/timeline"):
        if name <= f"{compaction.requested}~":
            story.storage.delete(f"{METADATA_TABLE_ROOT}/timeline/{name}")
    story.check_readers()
    build_of_another_index(story)
    with pytest.raises(AssertionError):
        story.check_readers()


FIRST, OF_RECORD_INDEX = "0" * 17, f"{1:017d}"


def test_another_engine_may_build_an_index_by_the_number_of_an_archived_build(story: Story) -> None:
    """Hudi counts builds on the timeline alone. The first log files of the record index complete once more
    then, behind the compaction that merged them; they have no entries, and `verify` finds nothing.
    """
    while story.served.act(ARCHIVE):
        pass
    assert not {FIRST, OF_RECORD_INDEX} & set(active(story, METADATA_TABLE_ROOT))
    names = story.storage.names(RECORD_INDEX_FOLDER)
    assert any(OF_RECORD_INDEX in name for name in names), "no clean has deleted them"
    now = story.writer._instants.next()
    build_of_another_index(story, OF_RECORD_INDEX, now)
    story.check()


def test_an_index_of_ours_never_has_the_number_of_files_that_are_there(story: Story) -> None:
    while story.served.act(ARCHIVE):
        pass
    storage = story.storage
    assert next_build_instant(storage, load_timeline(storage, METADATA_TABLE_ROOT)) == f"{2:017d}"
    story.later()
    while story.served.act(ServiceKind.CLEAN_INDEX):
        pass
    assert next_build_instant(storage, load_timeline(storage, METADATA_TABLE_ROOT)) == FIRST
