"""Cache folders that are damaged, on disks that refuse to say so, and beside files that cannot be deleted."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from tests.unit.index_assigner.index_world import MANY
from tidemark.index_assigner.index.errors import CacheCorruptError
from tidemark.index_assigner.index.rocks import RocksTier


def test_damage_is_told_also_where_the_disk_refuses_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rocks = RocksTier(tmp_path / "cache", "t", 16 << 20)
    with monkeypatch.context() as full:
        full.setattr(Path, "touch", refuse)
        assert isinstance(rocks.damaged("a record cannot be read"), CacheCorruptError)
    rocks.close()


def test_a_damaged_folder_is_moved_aside_also_where_a_former_one_cannot_be_deleted(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = assigners(table).open(table.known())
    stuck = one.folder.with_name("a.damaged")
    stuck.mkdir()
    (stuck / "file").touch()
    one.rocks.damaged("a record cannot be read")
    one.close()
    delete = shutil.rmtree

    def all_but_that(path: Path, ignore_errors: bool = False) -> None:
        if path != stuck:
            delete(path, ignore_errors)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", all_but_that)
        two = assigners(table).open(table.known())
    assert {path.name for path in one.folder.parent.iterdir()} == {"a", "a.lock", "a.damaged", "a.damaged-1"}
    assert (stuck / "file").exists()
    assert {key: found.group for key, found in two.ask(list(MANY)).items()} == {
        key: group for key, (group, _) in MANY.items()
    }
