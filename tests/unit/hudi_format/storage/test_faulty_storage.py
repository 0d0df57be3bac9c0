"""The faulty storage: faults strike where told, crashes forget exactly what was not synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.memory_storage import InMemoryStorage
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.storage import LocalStorage, open_storage


def test_a_fault_before_leaves_no_effect_and_one_after_leaves_it() -> None:
    storage = FaultyStorage(InMemoryStorage())
    storage.fail("create", nth=2)
    storage.fail("create", nth=3, when=When.AFTER)
    storage.create("a", b"")
    for path in ("b", "c"):
        with pytest.raises(InjectedFaultError) as fault:
            storage.create(path, b"")
        assert fault.value.kind is ErrorKind.RETRYABLE
    storage.create("d", b"")
    assert [info.name for info in storage.list("")] == ["a", "c", "d"]
    assert storage.calls["create"] == 4


def test_a_folder_is_no_file_to_delete() -> None:
    storage = FaultyStorage(InMemoryStorage())
    storage.make_dir("lock")
    assert not storage.delete("lock")
    assert not storage.delete("nothing")


def test_a_star_counts_writing_calls_only() -> None:
    storage = FaultyStorage(InMemoryStorage())
    storage.fail("*", nth=2)
    storage.create("a", b"")
    assert storage.read("a") == b""
    assert storage.exists("a")
    with pytest.raises(InjectedFaultError):
        storage.delete("a")
    assert storage.exists("a")


def test_a_crash_brings_unsynced_deletions_back_and_only_those() -> None:
    storage = FaultyStorage(InMemoryStorage())
    for path in ("a/1", "a/2", "b/1", "c/d/1", "c/d/2", "e/1"):
        storage.create(path, path.encode())
    for path in ("a/1", "a/2", "b/1", "e/1"):
        storage.delete(path)
    storage.delete_tree("c")
    storage.create("b/new", b"")
    storage.sync_dir("e")
    assert storage.crash(lambda path: path != "a/2") == ["a/1", "c/d/1", "c/d/2"]
    assert storage.read("c/d/2") == b"c/d/2"
    assert [info.path for info in storage.walk("")] == ["a/1", "b/new", "c/d/1", "c/d/2"]
    assert storage.crash() == []


def test_a_crash_does_not_undo_what_was_made_anew() -> None:
    storage = FaultyStorage(InMemoryStorage())
    storage.create("a", b"old")
    storage.delete("a")
    storage.replace("a", b"new")
    assert storage.crash() == []
    assert storage.read("a") == b"new"


def test_a_delete_that_failed_before_its_effect_has_nothing_to_undo() -> None:
    storage = FaultyStorage(InMemoryStorage())
    storage.create("a", b"")
    storage.fail("delete")
    with pytest.raises(InjectedFaultError):
        storage.delete("a")
    assert storage.crash() == []


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_local_locations_open_a_local_storage(form: str, tmp_path: Path) -> None:
    base = tmp_path / "ware house"
    storage = open_storage(form.format(str(base).replace(" ", "%20") if form.startswith("file") else base))
    storage.create("a", b"x")
    assert (base / "a").read_bytes() == b"x"
    assert storage.base_uri == str(base)


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("warehouse/t").base_uri == str(tmp_path / "warehouse" / "t")


@pytest.mark.parametrize("uri", ["s3://bucket/t", "s3a://b/t", "gs://b/t", "hdfs://h/t", "file://host/t", ""])
def test_object_stores_and_empty_locations_are_refused(uri: str) -> None:
    with pytest.raises(UnsupportedTableError):
        open_storage(uri)


def test_temporary_files_of_a_dead_process_are_passed_over(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("a", b"1")
    leftover = tmp_path / ".a.1-0.tmp"
    leftover.write_bytes(b"half")
    storage.replace("a", b"2")
    assert storage.read("a") == b"2"
    assert leftover.read_bytes() == b"half"


def test_a_failing_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(TypeError):
        storage.create("a", "text")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
