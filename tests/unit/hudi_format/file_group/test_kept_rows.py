"""Rows that are kept of files: the answers are those of reading anew, whatever is kept and lost, in every
order of questions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.kept_tables import MemoryKept
from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.file_group.test_slice_reader import (
    COMMIT,
    EVENT,
    FILE_ID,
    KEYS,
    ORDERING,
    SCHEMA,
    TIMES,
    Log,
    Row,
    deletes_of,
    instant,
    model,
    rows_table,
    stored_slice,
)
from tidemark.hudi_format.file_group import kept_rows
from tidemark.hudi_format.file_group.base_file import write_base_file, write_parquet
from tidemark.hudi_format.file_group.changes import Changes
from tidemark.hudi_format.file_group.kept_rows import SliceFiles, indexed, rows_at
from tidemark.hudi_format.file_group.kept_tables import FILE_BYTES, KeptFolder, KeptTables, NothingKept
from tidemark.hudi_format.file_group.log_blocks import LogContent
from tidemark.hudi_format.file_group.merge import changes_of_rows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.file_group.value_changes import SliceMerge, values_changed
from tidemark.hudi_format.key_digest import key_hashes
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_config import MergeMode

NULL = "null"
VALUES = st.sampled_from([NULL, "", "x", "y"])


def log(draw: st.DrawFn) -> Log:
    keys = draw(st.lists(KEYS, unique=True, min_size=1))
    split = draw(st.integers(0, len(keys)))
    rows = [(key, draw(TIMES), draw(VALUES), draw(st.integers(0, 5)) == 0) for key in keys[:split]]
    return Log(rows, [(key, draw(st.one_of(st.none(), TIMES))) for key in keys[split:]])


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Row] | None, list[Log], list[int]]:
    """Base rows, log files, and the steps of the slice that tasks are asked about, each by its number of
    logs: 2, 0, 2 is a slice with two logs, then with none, as a thawed task asks, then with two again.
    """
    keys = draw(st.lists(KEYS, unique=True))
    base = [(key, draw(TIMES), draw(VALUES), False) for key in keys] if draw(st.booleans()) else None
    logs = [log(draw) for _ in range(draw(st.integers(1, 4)))]
    return base, logs, draw(st.lists(st.integers(0, len(logs) - 1), min_size=1, max_size=6))


def nulled(rows: list[Row]) -> list[Row]:
    return [(key, ts, None if value == NULL else value, gone) for key, ts, value, gone in rows]  # type: ignore[misc]


def asked(
    merge: SliceMerge, file_slice: FileSlice, own: Log, mode: MergeMode, log_path: str | None = None
) -> tuple[set[object], ...]:
    rows = rows_table(nulled(own.rows), 9, FILE_ID) if own.rows else None
    deletes = deletes_of(own.deletes if mode is EVENT else [(key, None) for key, _ in own.deletes])
    changes = values_changed([merge.rows_logged(file_slice, rows, deletes, log_path)], "v")
    return tuple(
        set(zip(pairs.keys.to_pylist(), pc.fill_null(pairs.values, NULL).to_pylist(), strict=True))
        for pairs in (changes.puts, changes.deletes)
    )


@contextmanager
def keeping(how: str) -> Iterator[list[KeptTables]]:
    """The ways of several processes to what is kept, which are asked in turn."""
    with tempfile.TemporaryDirectory() as folder:
        several: dict[str, list[KeptTables]] = {
            "nothing": [NothingKept()],
            "lost now and then": [MemoryKept(3), MemoryKept()],
            "room for a file": [KeptFolder(Path(folder), 0) for _ in range(2)],
            "room for all": [KeptFolder(Path(folder), 0) for _ in range(3)],
        }
        yield several[how]


@settings(max_examples=120, deadline=None)
@given(
    lives(),
    st.sampled_from([EVENT, COMMIT]),
    st.sampled_from(["nothing", "lost now and then", "room for a file", "room for all"]),
    st.booleans(),
    st.sampled_from([0, 2, 4_096]),
    st.sampled_from([1, 2, 16]),
)
def test_what_is_kept_never_changes_an_answer(
    life: tuple[list[Row] | None, list[Log], list[int]],
    mode: MergeMode,
    how: str,
    from_writer: bool,
    large_log: int,
    together: int,
) -> None:
    """`from_writer`: the content of a log file is kept when it is made, and not when it is read. `large_log`:
    from so many changes on it is kept with where its keys are. `together`: so many of them are kept as one.
    """
    base, logs, steps = life
    storage = InMemoryStorage()
    named = [Log(nulled(each.rows), each.deletes) for each in logs]
    whole = stored_slice(storage, None if base is None else nulled(base), named, mode)
    with keeping(how) as processes, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_rows, "_LARGE_LOG", large_log)
        patch.setattr(kept_rows, "_TOGETHER", together)
        for step, number in enumerate(steps):
            kept = processes[step % len(processes)]
            if isinstance(kept, KeptFolder):
                kept.next_round(step, FILE_BYTES + 2_000 if how == "room for a file" else 1 << 22)
            merge = SliceMerge(storage, SCHEMA, mode, ORDERING if mode is EVENT else None, ["v"], kept)
            path = join_path("eu", whole.log_files[number]) if from_writer else None
            got = asked(merge, replace(whole, log_files=whole.log_files[:number]), logs[number], mode, path)
            (before, _), (after, _) = model(base, logs[:number], mode), model(base, logs[: number + 1], mode)
            assert got == (
                set(after.items()) - set(before.items()),
                set(before.items()) - set(after.items()),
            )


class Counted(InMemoryStorage):
    """Tells which files were read."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.paths.append(path)
        return super().read(path)

    def taken(self) -> list[str]:
        paths, self.paths = self.paths, []
        return sorted(paths)


BASE: list[Row] = [("k", 1, "x", False), ("l", 1, "y", False)]
LOGS = [Log([("k", 2, "y", False)]), Log([("l", 2, "x", False)])]
OWN = Log([("k", 3, "z", False)])


@pytest.fixture
def storage() -> Counted:
    return Counted()


def test_a_further_log_file_alone_is_read(storage: Counted) -> None:
    whole = stored_slice(storage, BASE, LOGS, EVENT)
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], MemoryKept())
    storage.taken()
    for number, read in ((1, whole.paths()[:2]), (2, whole.paths()[2:]), (2, []), (0, [])):
        asked(merge, replace(whole, log_files=whole.log_files[:number]), OWN, EVENT)
        assert storage.taken() == sorted(read)


def test_a_log_file_is_not_read_after_its_writer_kept_it(storage: Counted) -> None:
    """Not by another process either, and what it says is what the file says."""
    whole, kept = stored_slice(storage, BASE, LOGS, EVENT), MemoryKept()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    asked(merge, replace(whole, log_files=()), LOGS[0], EVENT, whole.paths()[1])
    storage.taken()
    other = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    got = asked(other, replace(whole, log_files=whole.log_files[:1]), OWN, EVENT)
    assert (storage.taken(), got) == ([], ({("k", "z")}, {("k", "y")}))


def test_another_column_another_mode_and_another_table_are_read_for_themselves(storage: Counted) -> None:
    whole, kept = stored_slice(storage, BASE, [], EVENT), MemoryKept()
    other = InMemoryStorage("mem://other")
    stored_slice(other, [("k", 1, "elsewhere", False)], [], EVENT)
    merges = [
        SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept),
        SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["ts"], kept),
        SliceMerge(storage, SCHEMA, COMMIT, None, ["v"], kept),
    ]
    storage.taken()
    for _ in range(2):
        for merge in merges:
            merge.rows_logged(whole, rows_table(OWN.rows, 9, FILE_ID), deletes_of([]))
    assert storage.taken() == whole.paths() * len(merges)
    merge = SliceMerge(other, SCHEMA, EVENT, ORDERING, ["v"], kept)
    assert asked(merge, whole, OWN, EVENT)[1] == {("k", "elsewhere")}


def test_a_file_group_that_is_compacted_or_taken_back_is_read_anew(storage: Counted) -> None:
    """Its next base file has another name, and a log file that was taken back is in no slice."""
    whole, kept = stored_slice(storage, BASE, LOGS, EVENT), MemoryKept()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    asked(merge, whole, OWN, EVENT, "eu/never-committed")
    assert asked(merge, whole, OWN, EVENT)[1] == {("k", "y")}
    name = f"{FILE_ID}_0-0-0_{instant(5)}.parquet"
    storage.create(
        join_path("eu", name), write_base_file(rows_table([("k", 4, "w", False)], 5, name), SCHEMA)
    )
    compacted = FileSlice("eu", FILE_ID, name, instant(5))
    assert asked(merge, compacted, Log([("k", 5, "z", False)]), EVENT) == ({("k", "z")}, {("k", "w")})


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(st.permutations([f"k{number}" for number in range(6)]), st.lists(KEYS)),
    st.lists(st.lists(KEYS, unique=True), min_size=1, max_size=3),
    st.sampled_from([1, 3, 1 << 62]),
)
def test_keys_are_found_with_all_their_rows(
    stored: list[str], questions: list[list[str]], hashes: int
) -> None:
    """Also of a damaged file, in which a key occurs twice, and where keys have the same hash."""
    rows = pa.table({"_hoodie_record_key": pa.array(stored, pa.string()), "n": list(range(len(stored)))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_rows, "key_hashes", lambda keys: key_hashes(keys) % np.uint64(hashes))
        index = indexed(pa.concat_tables([rows.slice(0, 2), rows.slice(2)]))
        for keys in questions:
            found = rows_at(*index, pa.array(keys, pa.string()))
            assert found.column("n").to_pylist() == [n for n, key in enumerate(stored) if key in keys]


def test_a_file_with_too_many_keys_to_sort_in_memory_is_read_each_time(
    storage: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "_KEYS_BYTES_MAX", 4)
    whole = stored_slice(storage, BASE, [], EVENT)
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], MemoryKept())
    for _ in range(2):
        storage.taken()
        assert asked(merge, whole, OWN, EVENT)[1] == {("k", "x")}
        assert storage.taken() == whole.paths()


def test_a_damaged_file_with_a_key_that_is_null_is_read_each_time(storage: Counted) -> None:
    name = f"{FILE_ID}_0-0-0_{instant(0)}.parquet"
    rows = rows_table(BASE, 0, name)
    at = rows.schema.get_field_index("_hoodie_record_key")
    damaged = rows.set_column(at, "_hoodie_record_key", pa.array([None, "l"], pa.string()))
    storage.create(join_path("eu", name), write_parquet(damaged, {}))
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], MemoryKept())
    for _ in range(2):
        storage.taken()
        own = Log([("l", 3, "z", False)])
        assert asked(merge, FileSlice("eu", FILE_ID, name, instant(0)), own, EVENT)[1] == {("l", "y")}
        assert storage.taken() == [join_path("eu", name)]


def test_a_log_file_of_partial_updates_that_stands_for_others_is_kept_whole(
    storage: Counted,
) -> None:
    columns = pa.schema([SCHEMA.arrow_with_meta.field(name) for name in ("_hoodie_record_key", "ts", "v")])
    rows = pa.table([["k", "l"], [1, 2], ["x", None]], schema=columns)
    parts = [changes_of_rows(rows, EVENT, ORDERING), Changes.of_deletes(deletes_of([("m", 3), ("n", None)]))]
    has = np.array([[True, True, False], [False, True, True]])
    content = LogContent(rows, Changes.concat(parts, [2, 0]), frozenset({instant(1), instant(2)}), has)
    files = SliceFiles(storage, columns, EVENT, ORDERING, MemoryKept())
    files.keep_log("eu/some", content)
    got = files.log(FileSlice("eu", FILE_ID, None, instant(0), ("some",)), "some", pa.array(["l"]))
    assert same_content(got, content)


def same_content(one: LogContent, other: LogContent) -> bool:
    names = ("ordering", "is_delete", "unconditional", "row")
    pairs = [(getattr(one.changes, name), getattr(other.changes, name)) for name in names]
    return (
        one.rows.equals(other.rows)
        and one.folds == other.folds
        and np.array_equal(one.has, other.has)  # type: ignore[arg-type]
        and one.changes.keys.equals(other.changes.keys)
        and all(np.array_equal(mine, others) for mine, others in pairs)
    )


def test_of_a_large_log_file_what_is_about_the_keys_is_taken(storage: Counted) -> None:
    """Every change of a key, also where another writer has several in one file, and nothing after a null."""
    columns = pa.schema([SCHEMA.arrow_with_meta.field(name) for name in ("_hoodie_record_key", "ts", "v")])
    keys = [f"k{number % 4_000}" for number in range(5_000)]
    files = SliceFiles(storage, columns, EVENT, ORDERING, MemoryKept())
    for name, stored in (("whole", keys), ("damaged", [None, *keys[1:]])):
        table = pa.table([stored, list(range(5_000)), ["x"] * 5_000], schema=columns)
        content = LogContent(table, changes_of_rows(table, EVENT, ORDERING))
        files.keep_log(f"eu/{name}", content)
        wanted = pa.array(["k7", "k3999", "other"])
        got = files.log(FileSlice("eu", FILE_ID, None, instant(0), (name,)), name, wanted)
        assert got.changes.ordering.tolist() == [7, 3_999, 4_007]
        assert same_content(got, content.of_keys(wanted))


def test_many_log_files_are_found_as_one(storage: Counted) -> None:
    """After the sixteenth was there, two files are asked for instead of seventeen. A file that another writer
    committed among them makes others of them.
    """
    logs = [Log([("k", 2 + number, f"v{number}", False)]) for number in range(17)]
    whole, kept = stored_slice(storage, BASE, logs, EVENT), MemoryKept()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    own = Log([("k", 99, "z", False)])
    for _ in range(2):
        kept.answered = 0
        assert asked(merge, whole, own, EVENT) == ({("k", "z")}, {("k", "v16")})
    assert kept.answered == 1 + 2
    fewer = replace(whole, log_files=whole.log_files[:15] + whole.log_files[16:])
    late = Log([("k", 17, "z", False)])
    assert asked(merge, fewer, late, EVENT) == (set(), set())
    assert asked(merge, replace(whole, log_files=whole.log_files[:16]), late, EVENT)[1] == {("k", "v15")}


def test_a_log_file_that_stands_for_others_is_merged_in_their_place(storage: Counted) -> None:
    """Its instant is the last one, and its rows count as those of the files that it stands for."""
    columns = pa.schema([SCHEMA.arrow_with_meta.field(name) for name in ("_hoodie_record_key", "ts", "v")])

    def content(value: str, folds: frozenset[str] = frozenset()) -> LogContent:
        rows = pa.table([["k"], [1], [value]], schema=columns)
        return LogContent(rows, changes_of_rows(rows, COMMIT, None), folds)

    names = [f".{FILE_ID}_{instant(number)}.log.1_0-0-0" for number in range(1, 19)]
    for standing in (3, 17):
        files = SliceFiles(storage, columns, COMMIT, None, MemoryKept())
        for number, name in enumerate(names):
            folds = frozenset({instant(1), instant(2)}) if number == standing else frozenset()
            files.keep_log(join_path("eu", name), content(f"v{number}", folds))
        got = files.logs(FileSlice("eu", FILE_ID, None, instant(0), tuple(names)), pa.array(["k"]))
        values = got.rows.column("v").to_pylist()
        # The files that it stands for are passed over.
        assert values == [f"v{standing}", *(f"v{n}" for n in range(2, 18) if n != standing)]
