"""Tables that processes keep for each other in a folder: what is kept is whole, stays within its room, and
every failure of the disk means "nothing kept".
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.hudi_format.file_group import kept_tables
from tidemark.hudi_format.file_group.kept_tables import FILE_BYTES, MAPPED_ROUNDS, KeptFolder

ROOM = 100 * FILE_BYTES
TABLES = [pa.table({"n": [1, 2]}), pa.table({"text": ["a", None], "n": [0.5, None]})]
# Each counts a bit more than two `FILE_BYTES`.
LARGE = [pa.table({"n": pa.array(range(FILE_BYTES // 8 + 8), pa.int64())})]
COUNTED = 2 * FILE_BYTES + 1_024


def opened(folder: Path, round_number: int = 1, bytes_max: int = ROOM) -> KeptFolder:
    """Another process's way to the folder."""
    kept = KeptFolder(folder, free_bytes_min=0)
    kept.next_round(round_number, bytes_max)
    return kept


def keep(kept: KeptFolder, name: str, tables: Sequence[pa.Table] = TABLES) -> None:
    kept.put(name, sum(table.nbytes for table in tables), lambda: tables)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"used"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def test_what_one_process_keeps_others_find(folder: Path) -> None:
    keep(opened(folder), "a")
    other = opened(folder)
    got = other.get("a")
    assert got is not None
    assert [table.to_pydict() for table in got] == [table.to_pydict() for table in TABLES]
    assert [table.schema for table in got] == [table.schema for table in TABLES]
    assert other.get("b") is None


def test_tables_without_rows_are_kept_too(folder: Path) -> None:
    keep(opened(folder), "a", [TABLES[0].slice(0, 0), TABLES[1]])
    got = opened(folder).get("a")
    assert got is not None
    assert [table.num_rows for table in got] == [0, 2]


def test_the_folder_is_this_users_alone(folder: Path) -> None:
    keep(opened(folder), "a")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_was_used_least_recently_makes_room(folder: Path) -> None:
    room = 4 * COUNTED
    for number, name in enumerate("abcd"):
        keep(opened(folder, number, room), name, LARGE)
    opened(folder, 8, room).get("a")
    keep(opened(folder, 9, room), "e", LARGE)
    # A quarter is free then, and one more file has come.
    assert names(folder) == {"a", "d", "e"} | names(folder) & {"c"}
    assert "b" not in names(folder)


def test_where_rounds_use_more_than_fits_what_is_kept_stays(folder: Path) -> None:
    """Least recent use alone would remove each file just before it is asked for again."""
    room = 2 * COUNTED
    for number in range(1, 4):
        kept, found = opened(folder, number, room), set()
        for name in "abc":
            if kept.get(name) is None:
                keep(kept, name, LARGE)
            else:
                found.add(name)
        assert found == (set("ab") if number > 1 else set())


def test_what_two_rounds_did_not_use_makes_room(folder: Path) -> None:
    room, kept_in = 2 * COUNTED, []
    for number, used in enumerate(("ab", "bc", "bc", "bc")):
        kept = opened(folder, number, room)
        for name in used:
            if kept.get(name) is None:
                keep(kept, name, LARGE)
        kept_in.append("".join(sorted(names(folder))))
    assert kept_in == ["ab", "ab", "bc", "bc"]


def test_what_is_larger_than_the_room_is_not_made(folder: Path) -> None:
    kept = opened(folder, bytes_max=COUNTED - FILE_BYTES)
    kept.put("a", FILE_BYTES, lambda: pytest.fail("made"))
    assert kept.get("a") is None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(1, 60_000), st.integers(0, 2)),
        max_size=40,
    )
)
def test_files_never_take_more_than_the_room(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int, int]]
) -> None:
    """Of two processes, in rounds that begin whenever a step says so."""
    folder, room, number = tmp_path_factory.mktemp("kept"), 5 * FILE_BYTES + 100_000, 1
    processes = [opened(folder, number, room) for _ in range(2)]
    for who, name, count, more in steps:
        number += more
        processes[who].next_round(number, room)
        got = processes[who].get(str(name))
        if got is None:
            keep(processes[who], str(name), [pa.table({"n": pa.array([name] * count, pa.int16())})])
        else:
            assert set(got[0].column("n").to_pylist()) == {name}
        sizes = [path.stat().st_size + FILE_BYTES for path in folder.iterdir() if path.name != "used"]
        assert sum(sizes) <= room


def test_a_disk_that_is_almost_full_is_left_to_others(folder: Path) -> None:
    kept = KeptFolder(folder, free_bytes_min=1 << 62)
    kept.next_round(1, ROOM)
    kept.put("a", 10, lambda: pytest.fail("made"))
    assert kept.get("a") is None


def test_a_write_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(sink: pa.NativeFile, tables: Sequence[pa.Table]) -> None:
        sink.write(b"half of")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(kept_tables, "write_tables", full)
        keep(opened(folder), "a")
    assert names(folder) == set()
    keep(opened(folder), "a")
    assert opened(folder).get("a") is not None


def test_errors_of_who_makes_the_tables_are_raised(folder: Path) -> None:
    def make() -> Sequence[pa.Table]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opened(folder).put("a", 10, make)


@pytest.mark.parametrize("lost", ["disk", "parent"])
def test_a_lost_folder_means_nothing_kept(folder: Path, lost: str) -> None:
    kept = opened(folder)
    keep(kept, "a")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    if lost == "parent":
        folder.parent.rmdir()
    assert opened(folder).get("a") is None
    keep(kept, "a")
    assert (opened(folder).get("a") is None) == (lost == "parent")


def test_nobody_waits_for_the_lock(folder: Path) -> None:
    """A process that is stopped while it holds the lock stops no other."""
    keep(opened(folder), "a")
    with (folder / "used").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        opened(folder).put("b", 10, lambda: pytest.fail("made"))
        assert opened(folder).get("a") is not None
    keep(opened(folder), "b")
    assert names(folder) == {"a", "b"}


def test_a_file_that_is_cut_off_is_not_kept(folder: Path) -> None:
    keep(opened(folder), "a")
    for size in range((folder / "a").stat().st_size - 1, -1, -1):
        os.truncate(folder / "a", size)
        assert opened(folder).get("a") is None


def test_what_a_killed_process_wrote_makes_room_in_its_turn(folder: Path) -> None:
    room = 2 * COUNTED
    keep(opened(folder, 1, room), "a", LARGE)
    os.rename(folder / "a", folder / "new.1.4711")
    keep(opened(folder, 2, room), "b", LARGE)
    keep(opened(folder, 2, room), "c", LARGE)
    assert names(folder) == {"b", "new.1.4711"}
    keep(opened(folder, 3, room), "c", LARGE)
    assert names(folder) == {"b", "c"}


def test_a_count_that_was_lost_is_made_anew_when_the_room_ends(folder: Path) -> None:
    """A process dies between the count and the file, again and again."""
    room = 2 * COUNTED
    for number in range(1, 9):
        with pytest.raises(KeyboardInterrupt):
            opened(folder, number, room).put("a", COUNTED - FILE_BYTES, _killed)
    keep(opened(folder, 9, room), "a", LARGE)
    assert names(folder) == {"a"}


def _killed() -> Sequence[pa.Table]:
    raise KeyboardInterrupt


def test_a_removed_file_is_mapped_for_some_rounds_at_most(folder: Path) -> None:
    kept = opened(folder, 1)
    keep(kept, "a")
    assert kept.get("a") is not None
    (folder / "a").unlink()
    assert kept.get("a") is not None  # mapped in this round
    assert str(folder / "a") in Path("/proc/self/maps").read_text()
    kept.next_round(1 + MAPPED_ROUNDS, ROOM)
    assert str(folder / "a") in Path("/proc/self/maps").read_text()
    kept.next_round(2 + MAPPED_ROUNDS, ROOM)
    assert str(folder / "a") not in Path("/proc/self/maps").read_text()
    assert kept.get("a") is None


def test_a_file_that_went_while_it_was_mapped_is_given_once_more(folder: Path) -> None:
    kept = opened(folder, 1)
    keep(kept, "a")
    kept.get("a")
    (folder / "a").unlink()
    kept.next_round(2, ROOM)
    assert kept.get("a") is not None
    assert kept.get("a") is None
