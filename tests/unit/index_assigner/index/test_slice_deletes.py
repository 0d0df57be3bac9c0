"""Which new rows a file group would hide, by what its log files delete, and what is read for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.file_group.test_slice_reader import (
    EVENT,
    ORDERING,
    SCHEMA,
    TIMES,
    Log,
    Row,
    slices,
    stored_slice,
)
from tests.unit.hudi_format.metadata_tables import file_id
from tests.unit.index_assigner.index_world import ORDERING as AT
from tests.unit.index_assigner.index_world import SCHEMA as ROWS
from tests.unit.index_assigner.index_world import TTL_MS, DataTable
from tidemark.hudi_format.commit.instants import create_requested
from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.file_group.log_blocks import read_log_deletes
from tidemark.hudi_format.file_group.slice_reader import merge_columns, read_slice
from tidemark.hudi_format.ordering import NO_ORDERING
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import Action
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.slice_deletes import DeletedKeys, SliceDeletes
from tidemark.index_assigner.index.slice_values import OrderingParts, SliceValues

COLUMNS = merge_columns(pa.schema([]), SCHEMA, ORDERING)


@settings(max_examples=150, deadline=None)
@given(slices(), TIMES)
def test_a_row_that_is_not_hidden_is_seen_after_any_deletes(
    made: tuple[list[Row] | None, list[Log]], at: int
) -> None:
    base, logs = made
    storage = InMemoryStorage()
    before = stored_slice(storage, base, logs, EVENT)
    live = set(read_slice(storage, before, SCHEMA, EVENT, ORDERING)["id"].to_pylist())
    deletes = [read_log_deletes(storage, f"eu/{name}", COLUMNS, EVENT, ORDERING) for name in before.log_files]
    deleted = DeletedKeys.of(deletes, 0)
    keys = pa.array([key for key in [f"k{number}" for number in range(7)] if key not in live], pa.string())
    hidden = deleted.hide(keys, np.full(len(keys), at))
    placed = [key for key, hides in zip(keys.to_pylist(), hidden.tolist(), strict=True) if not hides]
    with_rows = InMemoryStorage()
    more = [*logs, Log(rows=[(key, at, f"new {key}", False) for key in placed])] if placed else logs
    after = stored_slice(with_rows, base, more, EVENT)
    rows = read_slice(with_rows, after, SCHEMA, EVENT, ORDERING)
    values = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert {key: values.get(key) for key in placed} == {key: f"new {key}" for key in placed}
    assert "k6" in placed, "nothing was ever deleted of it"


def test_hidden_is_below_the_greatest_delete_and_always_below_one_without_a_value() -> None:
    logs = [Log(deletes=[("a", 5), ("b", None)]), Log(deletes=[("a", 3), ("b", 4), ("c", 7)])]
    parts = []
    for log in logs:
        storage = InMemoryStorage()
        [name] = stored_slice(storage, None, [log], EVENT).log_files
        parts.append(read_log_deletes(storage, f"eu/{name}", COLUMNS, EVENT, ORDERING))
    deleted = DeletedKeys.of(parts, 0)

    def hide(**rows: int) -> list[bool]:
        found: list[bool] = deleted.hide(pa.array(list(rows)), np.array(list(rows.values()))).tolist()
        return found

    assert hide(a=4, b=100, c=7, d=0) == [True, True, False, False]
    assert hide(a=5, c=6) == [False, True]
    assert dict(zip(deleted.keys.to_pylist(), deleted.stands.tolist(), strict=True)) == {
        "a": 5, "b": 4, "c": 7,
    }  # fmt: skip
    assert DeletedKeys.of([], 0).hide(pa.array(["a"]), np.array([0])).tolist() == [False]


class Groups:
    """A table with file groups 1 and 2, each with a delete; questions about them."""

    def __init__(self, stay: bool = True, bytes_max: int = 1 << 20) -> None:
        self.table, self.clock = DataTable(), ManualClock()
        self.table.commit_rows({"a": (1, 10), "b": (2, 10), "c": (2, 10)})
        self.table.commit_rows({}, {"a": 20, "b": 20})
        self.locations = Locations(1)
        parts = OrderingParts(ROWS, EVENT, AT, stay, TTL_MS)
        self.values = SliceValues(self.table.storage, self.locations, ROWS, EVENT, AT, 1 << 20)
        self.deletes = SliceDeletes(self.table.storage, self.values, parts, bytes_max, self.clock)

    def is_masked_by_delete(self, **groups: int) -> list[bool]:
        """Keys with the file group that each is bound for, all with ordering value 15."""
        where: Any = np.array([self.locations.intern("p", file_id(n)) for n in groups.values()], np.int32)
        ordering = np.full(len(groups), 15)
        found: list[bool] = self.deletes.is_masked_by_delete(pa.array(list(groups)), where, ordering).tolist()
        return found


def test_each_file_group_has_deletes_of_its_own() -> None:
    groups = Groups()
    assert groups.is_masked_by_delete(a=1, b=2, c=1, d=2) == [True, True, False, False]
    assert groups.is_masked_by_delete(a=2, b=1) == [False, False]
    assert groups.is_masked_by_delete(a=3) == [False], "nothing of this one is written yet"
    assert groups.deletes.files_read == 2


def test_the_value_of_a_delete_is_that_in_the_file_group_where_the_key_lived() -> None:
    groups = Groups()
    where: Any = np.array([groups.locations.intern("p", file_id(n)) for n in (1, 2, 1, 2)], np.int32)
    values = groups.deletes.values(pa.array(["a", "b", "b", "c"]), where)
    assert values.tolist() == [20, 20, NO_ORDERING, NO_ORDERING]


def test_what_was_read_is_read_again_after_half_the_time_to_live_and_after_another_writer() -> None:
    groups = Groups()
    groups.is_masked_by_delete(c=2)
    groups.table.commit_rows({}, {"c": 20})
    groups.values.forget()
    groups.clock.advance(TTL_MS / 2000)
    assert groups.is_masked_by_delete(c=2) == [False], "a tombstone tells of it as long as this is believed"
    groups.clock.advance(0.001)
    assert groups.is_masked_by_delete(c=2) == [True]
    groups = Groups()
    groups.is_masked_by_delete(c=2)
    groups.table.commit_rows({}, {"c": 20})
    groups.values.forget()
    groups.deletes.forget()
    assert groups.is_masked_by_delete(c=2) == [True]


@settings(max_examples=150, deadline=None)
@given(slices(), st.integers(0, 6))
def test_what_is_read_in_two_parts_is_what_is_read_at_once(
    made: tuple[list[Row] | None, list[Log]], cut: int
) -> None:
    storage = InMemoryStorage()
    names = stored_slice(storage, *made, EVENT).log_files
    parts = [read_log_deletes(storage, f"eu/{name}", COLUMNS, EVENT, ORDERING) for name in names]
    once = DeletedKeys.of(parts, 7)
    twice = DeletedKeys.of(parts[:cut], 3).with_later(parts[cut:], 7)
    assert by_key(twice) == by_key(once)
    assert twice.read_ms == 7


def by_key(deleted: DeletedKeys) -> dict[str, tuple[int, int]]:
    return dict(
        zip(
            deleted.keys.to_pylist(),
            zip(deleted.floor.tolist(), deleted.stands.tolist(), strict=True),
            strict=True,
        )
    )


def test_however_short_tombstones_live_no_log_file_is_read_twice() -> None:
    groups = Groups()
    for number in range(20):
        groups.table.commit_rows({f"k{number}": (1, 10)})
        groups.table.commit_rows({}, {f"k{number}": 20})
        groups.values.forget()
        groups.clock.advance(TTL_MS / 1000)
        assert groups.is_masked_by_delete(a=1, **{f"k{number}": 1}) == [True, True]
        held = groups.locations.intern("p", file_id(1))
        [file_slice] = groups.values.slices_at([held])
        assert file_slice is not None
        assert groups.deletes.files_read == len(file_slice.log_files)


def test_a_slice_whose_older_files_are_others_is_read_as_a_whole() -> None:
    groups = Groups()
    assert groups.is_masked_by_delete(a=1) == [True]
    groups.table.commit_rows({}, {"c": 20})
    [file_slice] = groups.values.slices_at([groups.locations.intern("p", file_id(1))])
    assert file_slice is not None
    # As a compaction leaves it: what its files deleted holds no more.
    for name in file_slice.log_files:
        groups.table.storage.delete(f"p/{name}")
    groups.table.commit_rows({"d": (1, 10)})
    groups.table.commit_rows({}, {"d": 20})
    groups.values.forget()
    groups.clock.advance(TTL_MS / 1000)
    assert groups.is_masked_by_delete(a=1, d=1) == [False, True]


def test_a_small_cache_reads_more_often_and_answers_alike() -> None:
    groups = Groups(bytes_max=1_000)
    for _ in range(3):
        assert groups.is_masked_by_delete(a=1) == [True]
        assert groups.is_masked_by_delete(b=2) == [True]
        assert groups.is_masked_by_delete(d=3) == [False]
        assert groups.deletes.nbytes <= 1_000
    assert groups.deletes.files_read > 2
    nothing = Groups(bytes_max=0)
    assert nothing.is_masked_by_delete(a=1, b=2) == [True, True]
    assert nothing.deletes.nbytes == 0


def test_where_deletes_leave_nothing_behind_no_file_is_read() -> None:
    groups = Groups(stay=False)
    assert groups.is_masked_by_delete(a=1, b=2) == [False, False]
    assert groups.deletes.files_read == 0


def test_a_log_file_that_was_compacted_away_makes_the_table_be_listed_anew() -> None:
    groups = Groups()
    groups.values.slices_at([groups.locations.intern("p", file_id(1))])
    for info in groups.table.storage.list("p"):
        if ".log." in info.name:
            groups.table.storage.delete(info.path)
    assert groups.is_masked_by_delete(a=1) == [False]


class _CleanedWhileListed:
    """A storage in which another engine's clean begins while a partition is listed, ``times`` times."""

    def __init__(self, storage: InMemoryStorage, times: int) -> None:
        self._storage, self._left = storage, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def list(self, path: str) -> Any:
        listed = self._storage.list(path)
        if path == "p" and self._left:
            self._left -= 1
            create_requested(Unfenced(self._storage), f"2999010100000000{self._left}", Action.CLEAN)
        return listed


def test_a_listing_during_which_files_were_removed_is_made_anew() -> None:
    """It may have the log files of a slice and not its base file: a row would be taken for absent."""
    groups = Groups()
    torn: Any = _CleanedWhileListed(groups.table.storage, 1)
    values = SliceValues(torn, groups.locations, ROWS, EVENT, AT, 1 << 20)
    place = groups.locations.intern("p", file_id(2))
    with pytest.raises(FileMissingError, match="while they were listed"):
        values.slices_at([place])
    values.forget()
    assert values.slices_at([place])[0] is not None
    endless: Any = _CleanedWhileListed(groups.table.storage, 9)
    values = SliceValues(endless, groups.locations, ROWS, EVENT, AT, 1 << 20)
    with pytest.raises(TimelineConflictError, match="vanished in each"):
        values.of(pa.array(["c"]), np.array([place], np.int32))
