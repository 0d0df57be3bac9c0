"""The storage contract: every implementation has to pass all of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.hudi_format.errors import AlreadyExistsError, FileMissingError, InvalidPathError
from tidemark.hudi_format.errors import FencedOutError as GoneError
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.storage.base import FolderStorage as Storage


def test_created_file_is_read_back_whole_and_in_ranges(storage: Storage) -> None:
    storage.create("a/b/file", memoryview(b"0123456789"))
    assert storage.read("a/b/file") == b"0123456789"
    assert storage.read_range("a/b/file", 3, 4) == b"3456"
    assert storage.read_range("a/b/file", 8, 40) == b"89"
    with storage.open_input("a/b/file") as source:
        source.seek(5)
        assert source.read(2) == b"56"
        assert source.size() == 10


def test_stat_tells_size_and_kind(storage: Storage) -> None:
    storage.create("a/file", b"abc")
    info = storage.stat("a/file")
    assert info is not None
    assert (info.path, info.name, info.size, info.is_dir) == ("a/file", "file", 3, False)
    folder = storage.stat("a")
    assert folder is not None
    assert folder.is_dir
    assert folder.size == 0
    assert storage.stat("a/none") is None
    assert storage.stat("a/file/below") is None
    assert storage.exists("a/file")
    assert not storage.exists("b")


def test_create_of_an_existing_file_fails_and_changes_nothing(storage: Storage) -> None:
    storage.create("file", b"first")
    with pytest.raises(AlreadyExistsError):
        storage.create("file", b"second")
    assert storage.read("file") == b"first"
    assert [info.name for info in storage.list("")] == ["file"]


def test_empty_content_makes_an_empty_file(storage: Storage) -> None:
    storage.create("empty", b"")
    assert storage.read("empty") == b""


def test_reading_what_is_absent_raises_file_missing(storage: Storage) -> None:
    storage.make_dir("folder")
    for path in ("none", "folder", "none/below"):
        with pytest.raises(FileMissingError):
            storage.read(path)
        with pytest.raises(FileMissingError):
            storage.read_range(path, 0, 1)
        with pytest.raises(FileMissingError):
            storage.open_input(path)


def test_list_is_one_level_in_order_and_walk_is_all_files(storage: Storage) -> None:
    for path in ("b/2", "a/z/1", "a/b", "a/.hidden", "c"):
        storage.create(path, b"x")
    storage.make_dir("empty")
    assert [(info.path, info.is_dir) for info in storage.list("")] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("empty", True),
    ]
    assert [info.path for info in storage.list("a")] == ["a/.hidden", "a/b", "a/z"]
    assert sorted(storage.names("")) == ["a", "b", "c", "empty"]
    assert sorted(storage.names("a")) == [".hidden", "b", "z"]
    assert storage.sizes("a", ["b", ".hidden", "gone"]) == {"b": 1, ".hidden": 1}
    assert (storage.sizes("c", ["b"]), storage.sizes("none", ["b"])) == ({}, {})
    with pytest.raises(InvalidPathError):
        storage.sizes("a", ["z/1"])
    assert [info.path for info in storage.walk("")] == ["a/.hidden", "a/b", "a/z/1", "b/2", "c"]
    assert [info.path for info in storage.walk("a")] == ["a/.hidden", "a/b", "a/z/1"]
    assert (storage.list("none"), storage.walk("none"), storage.names("none")) == ([], [], [])
    assert storage.list("empty") == []


def test_replace_makes_and_overwrites(storage: Storage) -> None:
    storage.replace("a/file", b"1")
    storage.replace("a/file", b"22")
    assert storage.read("a/file") == b"22"
    assert [info.name for info in storage.list("a")] == ["file"]


def test_replace_removes_hadoops_stale_checksum_of_this_file_only(storage: Storage) -> None:
    storage.create("a/.file.crc", b"crc")
    storage.create("a/.other.crc", b"crc")
    storage.replace("a/file", b"1")
    assert [info.name for info in storage.list("a")] == [".other.crc", "file"]


def test_make_dir_is_repeatable_unless_exclusive(storage: Storage) -> None:
    storage.make_dir("a/b")
    storage.make_dir("a/b")
    with pytest.raises(AlreadyExistsError):
        storage.make_dir("a/b", exclusive=True)
    storage.make_dir("a/c", exclusive=True)
    assert [info.path for info in storage.list("a")] == ["a/b", "a/c"]


def test_rename_moves_a_folder_with_its_files(storage: Storage) -> None:
    storage.create("a/b/file", b"x")
    storage.create("ab", b"y")
    storage.make_dir("t")
    storage.rename("a", "t/a2")
    assert storage.read("t/a2/b/file") == b"x"
    assert not storage.exists("a")
    assert storage.read("ab") == b"y"


def test_rename_into_a_gone_folder_fails_and_moves_nothing(storage: Storage) -> None:
    storage.create("lock", b"nonce")
    with pytest.raises(FileMissingError):
        storage.rename("lock", "term-1/lock")
    assert storage.read("lock") == b"nonce"
    assert not storage.exists("term-1")


def test_rename_of_what_is_absent_or_onto_what_exists_fails(storage: Storage) -> None:
    storage.create("a", b"a")
    storage.create("b", b"b")
    storage.make_dir("folder")
    with pytest.raises(FileMissingError):
        storage.rename("none", "c")
    with pytest.raises(AlreadyExistsError):
        storage.rename("a", "b")
    storage.make_dir("other")
    with pytest.raises(AlreadyExistsError):
        storage.rename("other", "folder")
    assert storage.read("b") == b"b"


def test_rename_over_puts_a_file_in_place_of_another_and_makes_no_folder(storage: Storage) -> None:
    storage.create("ours/owner", b"2")
    storage.create("lock/owner", b"1")
    storage.create("file", b"")
    for gone in (("none", "lock/owner"), ("ours/owner", "none/owner"), ("ours/owner", "file/owner")):
        with pytest.raises(FileMissingError):
            storage.rename_over(*gone)
    assert storage.read("lock/owner") == b"1"
    storage.rename_over("ours/owner", "lock/owner")
    assert [(info.path, storage.read(info.path)) for info in storage.walk("")] == [
        ("file", b""),
        ("lock/owner", b"2"),
    ]


def test_a_folder_is_never_renamed_onto_a_file_or_onto_a_folder_with_something_in_it(
    storage: Storage,
) -> None:
    storage.create("ours/owner", b"1")
    storage.create("t/file", b"")
    storage.create("t/folder/owner", b"2")
    for taken in ("t/file", "t/folder"):
        with pytest.raises(AlreadyExistsError):
            storage.rename("ours", taken)
    with pytest.raises(FileMissingError):
        storage.rename("ours", "t/file/below")
    assert [info.path for info in storage.walk("")] == ["ours/owner", "t/file", "t/folder/owner"]
    assert storage.read("t/folder/owner") == b"2"
    with pytest.raises(FileMissingError):
        storage.read("t/file/owner")


def test_of_many_that_rename_folders_to_one_name_exactly_one_wins_and_files_count(storage: Storage) -> None:
    for number in range(6):
        storage.create(f"ours/{number}/owner", b"%d" % number)
    storage.make_dir("t")
    won: list[str] = []
    ready = threading.Barrier(8)

    def compete(number: int) -> None:
        ready.wait()
        try:
            if number < 6:
                storage.rename(f"ours/{number}", "t/lock")
            else:
                storage.create("t/lock", b"")
            won.append(str(number) if number < 6 else "file")
        except AlreadyExistsError:
            pass

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    if won != ["file"]:
        assert storage.read("t/lock/owner") == won[0].encode()
    assert len([each for each in storage.list("ours") if each.is_dir]) == (6 if won == ["file"] else 5)


def test_delete_tells_whether_there_was_a_file_and_takes_its_checksum_along(storage: Storage) -> None:
    storage.create("a/file", b"x")
    storage.create("a/.file.crc", b"x")
    assert storage.delete("a/file") is True
    assert storage.delete("a/file") is False
    assert storage.list("a") == []


def test_delete_tree_counts_files_and_is_repeatable(storage: Storage) -> None:
    for path in ("a/1", "a/b/2", "a/b/c/3", "ab/4"):
        storage.create(path, b"x")
    assert storage.delete_tree("a") == 3
    assert storage.delete_tree("a") == 0
    assert [info.path for info in storage.walk("")] == ["ab/4"]
    assert not storage.exists("a")


def test_touch_makes_an_empty_file_and_moves_its_time_forward(storage: Storage) -> None:
    storage.touch("a/beat")
    first = storage.stat("a/beat")
    assert first is not None
    assert first.size == 0
    for _ in range(50):
        storage.touch("a/beat")
        again = storage.stat("a/beat")
        assert again is not None
        assert again.mtime_ms >= first.mtime_ms
    storage.create("full", b"content")
    storage.touch("full")
    assert storage.read("full") == b"content"


def test_touch_without_create_leaves_what_is_absent_absent(storage: Storage) -> None:
    storage.touch("none/beat", create=False)
    assert storage.list("") == []
    storage.create("beat", b"")
    storage.touch("beat", create=False)
    assert storage.exists("beat")


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "a/.", "a\0b", ".."])
def test_paths_that_leave_the_base_are_refused_by_every_operation(storage: Storage, path: str) -> None:
    storage.make_dir("s")
    storage.create("file", b"x")
    calls: list[Callable[[], object]] = [
        lambda: storage.read(path),
        lambda: storage.read_range(path, 0, 1),
        lambda: storage.open_input(path),
        lambda: storage.stat(path),
        lambda: storage.exists(path),
        lambda: storage.list(path),
        lambda: storage.walk(path),
        lambda: storage.create(path, b""),
        lambda: storage.replace(path, b""),
        lambda: storage.publish("s", path, b""),
        lambda: storage.publish(path, "new", b""),
        lambda: storage.write_in_pieces(path, "new"),
        lambda: storage.link(path, "new"),
        lambda: storage.link("file", path),
        lambda: storage.link_all([(path, "new")]),
        lambda: storage.link_all([("file", path)]),
        lambda: storage.make_dir(path),
        lambda: storage.rename("file", path),
        lambda: storage.rename(path, "new"),
        lambda: storage.delete(path),
        lambda: storage.delete_tree(path),
        lambda: storage.touch(path),
        lambda: storage.sync_dir(path),
    ]
    for call in calls:
        with pytest.raises(InvalidPathError):
            call()


@pytest.mark.parametrize("operation", ["read", "delete", "delete_tree", "touch"])
def test_the_base_itself_is_no_file(storage: Storage, operation: str) -> None:
    with pytest.raises(InvalidPathError):
        getattr(storage, operation)("")


def test_names_with_spaces_percent_signs_and_other_scripts_are_kept(storage: Storage) -> None:
    names = ["a b%2F", "日本", "ü=é", "back\\slash", "new\nline"]
    for name in names:
        storage.create(f"p/{name}", name.encode())
    assert sorted(info.name for info in storage.list("p")) == sorted(names)
    assert all(storage.read(f"p/{name}") == name.encode() for name in names)


def test_of_many_that_create_one_file_exactly_one_wins(storage: Storage) -> None:
    storage.make_dir("s")
    won: list[bytes] = []
    ready = threading.Barrier(8)

    def compete(content: bytes, by_publish: bool) -> None:
        ready.wait()
        try:
            if by_publish:
                storage.publish("s", "target/file", content)
            else:
                storage.create("target/file", content)
            won.append(content)
        except AlreadyExistsError:
            pass

    threads = [threading.Thread(target=compete, args=(b"%d" % n * 1000, n % 2 == 0)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert storage.read("target/file") == won[0]


def test_renaming_the_staging_folder_while_it_is_in_use_stops_every_later_publish(storage: Storage) -> None:
    storage.make_dir("s")
    published = itertools.count()
    fenced = threading.Event()
    voided_at: list[int] = []

    def publish_until_fenced() -> None:
        for number in published:
            try:
                storage.publish("s", f"out/{number}", b"x")
            except GoneError:
                fenced.set()
                return

    thread = threading.Thread(target=publish_until_fenced)
    thread.start()
    while not storage.exists("out/5"):
        pass
    storage.rename("s", "void")
    voided_at.append(len(storage.list("out")))
    thread.join(timeout=60)
    assert fenced.is_set()
    # At most the one publish that had already linked its file when the folder was renamed.
    assert len(storage.list("out")) <= voided_at[0] + 1


def test_many_names_are_made_at_once_and_those_that_exist_are_told(storage: Storage) -> None:
    storage.create("s/one", b"1")
    storage.create("s/two", b"2")
    storage.create("out/b", b"other")
    links = [("s/one", "out/a"), ("s/two", "out/b"), ("s/one", "new/c"), ("s/two", "out/d")]
    assert storage.link_all(links) == ["out/b"]
    storage.sync_dir("out")
    contents = {path: storage.read(path) for _, path in links}
    assert contents == {"out/a": b"1", "out/b": b"other", "new/c": b"1", "out/d": b"2"}
    assert storage.link_all(links) == [path for _, path in links]
    assert storage.link_all([]) == []
    storage.rename("s", "void")
    with pytest.raises(GoneError):
        storage.link_all([("s/one", "out/e")])
    assert not storage.exists("out/e")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_in_place_of_a_folder_leads_nothing_out_of_the_table(tmp_path: Path, overwrite: bool) -> None:
    storage, outside = LocalStorage(tmp_path / "table"), tmp_path / "outside"
    outside.mkdir()
    storage.create("staging/file", b"")
    storage.create("day=1/file", b"")
    (tmp_path / "table" / "day=2").symlink_to(outside)
    (tmp_path / "table" / "day=1" / "hour=3").symlink_to(outside, target_is_directory=True)
    for folder in ("day=2", "day=2/hour=1", "day=1/hour=3"):
        with pytest.raises(InvalidPathError, match="is a symbolic link"):
            storage.publish("staging", f"{folder}/rows.parquet", b"rows", overwrite=overwrite)
    assert list(outside.iterdir()) == []
    storage.publish("staging", "day=1/rows.parquet", b"rows", overwrite=overwrite)
    assert storage.read("day=1/rows.parquet") == b"rows"
