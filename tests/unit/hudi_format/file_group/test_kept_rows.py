"""Rows that are kept of files: the answers are those of reading anew, at every bound, in every order of
questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tidemark.hudi_format.file_group.base_file import write_base_file
from tidemark.hudi_format.file_group.kept_rows import KeptFiles, KeyedRows
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.file_group.value_changes import SliceMerge, values_changed
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


def asked(merge: SliceMerge, file_slice: FileSlice, own: Log, mode: MergeMode) -> tuple[set[object], ...]:
    rows = rows_table(nulled(own.rows), 9, FILE_ID) if own.rows else None
    deletes = deletes_of(own.deletes if mode is EVENT else [(key, None) for key, _ in own.deletes])
    changes = values_changed([merge.rows_logged(file_slice, rows, deletes)], "v")
    return tuple(
        set(zip(pairs.keys.to_pylist(), pc.fill_null(pairs.values, NULL).to_pylist(), strict=True))
        for pairs in (changes.puts, changes.deletes)
    )


@settings(max_examples=60, deadline=None)
@given(lives(), st.sampled_from([EVENT, COMMIT]), st.sampled_from([0, 300, 1 << 20]))
def test_what_is_kept_never_changes_an_answer(
    life: tuple[list[Row] | None, list[Log], list[int]], mode: MergeMode, bytes_max: int
) -> None:
    base, logs, steps = life
    storage, kept = InMemoryStorage(), KeptFiles()
    named = [Log(nulled(each.rows), each.deletes) for each in logs]
    whole = stored_slice(storage, None if base is None else nulled(base), named, mode)
    merge = SliceMerge(storage, SCHEMA, mode, ORDERING if mode is EVENT else None, ["v"], kept)
    for number in steps:
        kept.next_round(bytes_max)
        got = asked(merge, replace(whole, log_files=whole.log_files[:number]), logs[number], mode)
        (before, _), (after, _) = model(base, logs[:number], mode), model(base, logs[: number + 1], mode)
        assert got == (set(after.items()) - set(before.items()), set(before.items()) - set(after.items()))
        assert kept.nbytes <= bytes_max


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
    whole, kept = stored_slice(storage, BASE, LOGS, EVENT), KeptFiles()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    storage.taken()
    for number, read in ((1, whole.paths()[:2]), (2, whole.paths()[2:]), (2, []), (0, [])):
        kept.next_round(1 << 20)
        asked(merge, replace(whole, log_files=whole.log_files[:number]), OWN, EVENT)
        assert storage.taken() == sorted(read)


def test_another_column_another_mode_and_another_table_are_read_for_themselves(storage: Counted) -> None:
    whole, kept = stored_slice(storage, BASE, [], EVENT), KeptFiles()
    kept.next_round(1 << 20)
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


def groups(storage: InMemoryStorage, count: int) -> Iterator[FileSlice]:
    """Slices of equal size."""
    for number in range(count):
        name = f"{FILE_ID[:-1]}{number}_0-0-0_{instant(0)}.parquet"
        storage.create(join_path("eu", name), write_base_file(rows_table(BASE, 0, name), SCHEMA))
        yield FileSlice("eu", f"{FILE_ID[:-1]}{number}", name, instant(0))


def room_for(count: int) -> int:
    """Bytes for the rows of so many of these slices, and a half of one."""
    storage, kept = InMemoryStorage(), KeptFiles()
    [alone] = groups(storage, 1)
    kept.next_round(1 << 20)
    asked(SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept), alone, OWN, EVENT)
    return kept.nbytes * (2 * count + 1) // 2


def test_where_rounds_use_more_than_fits_what_is_kept_stays(storage: Counted) -> None:
    """Least recent use alone would drop each slice just before it is asked for again."""
    slices, kept = list(groups(storage, 3)), KeptFiles()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    bytes_max = room_for(2)
    for number in range(3):
        storage.taken()
        kept.next_round(bytes_max)
        for each in slices:
            asked(merge, each, OWN, EVENT)
        assert storage.taken() == [path for each in slices[2 if number else 0 :] for path in each.paths()]


def test_what_two_rounds_did_not_use_makes_room(storage: Counted) -> None:
    slices, kept = list(groups(storage, 3)), KeptFiles()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    bytes_max = room_for(2)
    read = []
    for asked_for in ((0, 1), (1, 2), (1, 2), (1, 2), (0,)):
        storage.taken()
        kept.next_round(bytes_max)
        for number in asked_for:
            asked(merge, slices[number], OWN, EVENT)
        read.append(len(storage.taken()))
    assert read == [2, 1, 1, 0, 1]


def test_a_lower_bound_drops_at_once(storage: Counted) -> None:
    [first, second], kept = list(groups(storage, 2)), KeptFiles()
    merge = SliceMerge(storage, SCHEMA, EVENT, ORDERING, ["v"], kept)
    kept.next_round(room_for(2))
    for each in (first, second):
        asked(merge, each, OWN, EVENT)
    kept.next_round(room_for(1))
    assert 0 < kept.nbytes <= room_for(1)
    storage.taken()
    asked(merge, second, OWN, EVENT)
    assert storage.taken() == []
    kept.next_round(0)
    assert kept.nbytes == 0


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(st.permutations([f"k{number}" for number in range(6)]), st.lists(st.one_of(st.none(), KEYS))),
    st.lists(st.lists(KEYS, unique=True, min_size=2), min_size=1, max_size=3),
)
def test_keys_are_found_each_time_with_all_their_rows(
    stored: list[str | None], questions: list[list[str]]
) -> None:
    """Also of a damaged file, in which a key occurs twice or is null."""
    rows = pa.table({"_hoodie_record_key": pa.array(stored, pa.string()), "n": list(range(len(stored)))})
    keyed = KeyedRows(pa.concat_tables([rows.slice(0, 2), rows.slice(2)]))
    for keys in [*questions, *questions]:
        found = keyed.of_keys(pa.array(keys, pa.string()))
        assert found.column("n").to_pylist() == [n for n, key in enumerate(stored) if key in keys]
