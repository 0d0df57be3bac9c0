"""The column stats' records: how they are written, merged and deleted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, ValueType, column_ranges
from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.metadata_table.log_records import log_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    column_stats_key,
    columns_left_out,
    file_keys,
    file_records,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
    encode_stats,
    merge_stats,
)
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.record_schema import encode_record
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import parent_of

FIRST, SECOND = "20260101000000000", "20260101000000001"
GROUP = ShardId(0)
INT, STRING = StatType(ValueType.INT), StatType(ValueType.STRING)
BASE = "f1-0_0-0-0_20260101000000000.parquet"


def stats(low: Any, high: Any, kind: StatType = INT, **changed: Any) -> ColumnStats:
    nulls = 3 if low is None else 1
    return replace(ColumnStats(BASE, ColumnRange("c", kind, low, high, 3, nulls)), **changed)


def entries(*records: ColumnStats) -> list[StoredEntries]:
    """One log block of each record, all of one key."""
    return [StoredEntries(pa.array(["k"]), pa.array([encode_stats(each)]), "", "it") for each in records]


DELETED = StoredEntries(pa.array(["k"]), None, "", "it")


def bounds_of(records: list[StoredEntries]) -> list[tuple[Any, Any, int, int]]:
    merged = COLUMN_STATS.merge(records)
    stored = COLUMN_STATS.base_records(records)
    assert {key: decode_stats(value, "", "it") for key, value in stored.items()} == merged
    found = [each.range for each in merged.values()]
    return [(each.low, each.high, each.values, each.nulls) for each in found]


def test_log_files_keep_ranges_and_deletes_take_whole_files_away() -> None:
    rows = pa.table({"c": pa.array([4, None, 1], pa.int32()), "s": ["x", "y", "z"]})
    records = file_records("p", BASE, column_ranges(rows, ["c", "s"]))
    assert list(records) == file_keys("p", BASE, ["c", "s"])
    storage, names = InMemoryStorage(), []
    commits = [StatsChanges(records), StatsChanges(deleted=[*file_keys("p", BASE, ["c"]), "none"])]
    for instant, changes in zip((FIRST, SECOND), commits, strict=True):
        log, data = COLUMN_STATS.log_file(changes, instant, GROUP)
        assert (log.upserts, log.deletes) == (len(changes.records), len(changes.deleted))
        assert log.name == f".col-stats-0000-0_{instant}.log.1_0-0-0"
        storage.create(log.path, data)
        names.append(log.name)
    merged = [
        COLUMN_STATS.merge(log_entries(storage, parent_of(log.path), names[:count], lambda _: True))
        for count in (1, 2)
    ]
    assert [sorted(each.range.column for each in found.values()) for found in merged] == [["c", "s"], ["s"]]
    assert merged[0][column_stats_key("c", "p", BASE)].range == ColumnRange("c", INT, 1, 4, 3, 1)


def test_keys_are_hudi_s() -> None:
    # Of a table that Hudi 1.2.0 wrote: column, partition (`.` where there is none), file.
    key = column_stats_key("c", "", BASE)
    assert len(key) == 48
    assert key == column_stats_key("c", ".", BASE)
    assert key[:12] == column_stats_key("c", "p", "other")[:12]
    assert key[24:] == column_stats_key("d", "p", BASE)[24:]
    assert key[12:24] != column_stats_key("c", "p", BASE)[12:24]


def test_changes_are_divided_by_the_hash_of_their_keys() -> None:
    keys = [column_stats_key(f"c{number}", "p", BASE) for number in range(9)]
    changes = StatsChanges(dict.fromkeys(keys[:6], b"v"), keys[6:])
    divided = changes.by_group(4)
    for group, part in divided.items():
        assert part
        assert {*record_index_shard([*part.records, *part.deleted], 4).tolist()} == {group}
    assert sorted(key for part in divided.values() for key in part.records) == sorted(keys[:6])
    assert sorted(key for part in divided.values() for key in part.deleted) == sorted(keys[6:])
    assert StatsChanges().by_group(4) == {}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([stats(1, 5), stats(3, 9)], [(1, 9, 6, 2)]),
        ([stats(1, 5), stats(None, None)], [(1, 5, 6, 4)]),
        ([stats(None, None), stats(None, None)], [(None, None, 6, 6)]),
        ([stats(1, 5), stats(3, 9, is_tight=True)], [(3, 9, 3, 1)]),
        ([stats(1, 5), stats(3, 9, is_deleted=True)], []),
        ([stats(1, 5, is_deleted=True), stats(3, 9)], [(3, 9, 3, 1)]),
        ([stats(1, 5), stats(None, None, StatType(ValueType.NULL))], [(1, 5, 6, 4)]),
        ([stats(None, None, StatType(ValueType.NULL)), stats(1, 5)], [(1, 5, 6, 4)]),
        ([stats("\uff5e", "\uff5e", STRING), stats("\U0001f600", "\U0001f600", STRING)],
         [("\uff5e", "\U0001f600", 6, 2)]),
        ([stats(b"\xff", b"\xff", StatType(ValueType.DECIMAL, "5,2")),
          stats(b"\x01", b"\x01", StatType(ValueType.DECIMAL, "5,2"))], [(b"\xff", b"\x01", 6, 2)]),
    ],
)  # fmt: skip
def test_records_of_one_key_merge_as_hudi_s_do(records: list[ColumnStats], expected: list[Any]) -> None:
    assert bounds_of(entries(*records)) == expected


def test_a_nan_of_another_writer_s_stays_above_all_numbers() -> None:
    double = StatType(ValueType.DOUBLE)
    for both in ([(1.0, math.nan), (0.5, math.inf)], [(0.5, math.inf), (1.0, math.nan)]):
        merged = COLUMN_STATS.merge(entries(*(stats(low, high, double) for low, high in both)))
        (found,) = merged.values()
        assert found.range.low == 0.5
        assert str(found.range.high) == "nan"


def test_a_deleted_key_begins_anew() -> None:
    before, after = entries(stats(1, 5), stats(7, 8))
    assert bounds_of([before, DELETED]) == []
    assert bounds_of([before, DELETED, after]) == [(7, 8, 3, 1)]


def test_a_single_record_is_copied_with_what_its_writer_said_of_it() -> None:
    (part,) = entries(stats(1, 5, sizes=(70, 90)))
    assert part.values is not None
    assert dict(COLUMN_STATS.base_records([part])) == {"k": part.values[0].as_py()}


def test_two_types_of_one_key_are_damage() -> None:
    older, newer = stats(1, 5), stats(1, 5, StatType(ValueType.LONG))
    with pytest.raises(CorruptFileError, match=r"it: column c .* of the types INT and LONG"):
        merge_stats(older, newer, "it")


def test_records_that_miss_a_bound_are_damage() -> None:
    with pytest.raises(CorruptFileError, match="it: .* one of its bounds is null"):
        decode_stats(encode_stats(stats(None, 5)), "", "it")


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        ("00", "it has no valueType"),
        ("02 c601 00", "99 is not a valid ValueType"),
        ("02 0e 00", "bound 1 is of another type than STRING"),
        ("02 02 00", "bound 1 is of another type than NULL"),
    ],
)
def test_damaged_types_are_errors_that_name_the_file(type_: str, said: str) -> None:
    good = encode_stats(stats(1, 5))
    as_int = bytes.fromhex("02 06 00 0000")
    assert good.endswith(as_int)
    with pytest.raises(CorruptFileError, match=f"it: .*{said}"):
        decode_stats(good.removesuffix(as_int) + bytes.fromhex(type_ + "0000"), "", "it")


def test_a_record_of_another_kind_is_an_error() -> None:
    with pytest.raises(CorruptFileError, match="it: a record of the column stats is of type 2"):
        decode_stats(encode_record({"key": "", "type": 2, "filesystemMetadata": {}}), "", "it")


def test_log_files_that_cannot_be_are_refused() -> None:
    with pytest.raises(HudiFormatError, match="without records"):
        COLUMN_STATS.log_file(StatsChanges(), FIRST, GROUP)
    with pytest.raises(HudiFormatError, match="makes and deletes"):
        COLUMN_STATS.log_file(StatsChanges({"k": b"v"}, ["k"]), FIRST, GROUP)
    with pytest.raises(UnsupportedTableError, match="group 10000"):
        COLUMN_STATS.file_id(ShardId(10_000))


def test_records_of_some_keys_are_merged_alone() -> None:
    def part(key: str, *records: ColumnStats) -> StoredEntries:
        return StoredEntries(
            pa.array([f"{key}{number}" for number in range(len(records))]),
            pa.array([encode_stats(each) for each in records]),
            "",
            "it",
        )

    parts = [part("k", stats(1, 5), stats(2, 6)), part("x", stats(0, 1)), part("k", stats(9, 9), stats(7, 8))]
    parts.append(StoredEntries(pa.array(["k1", "x0"]), None, "", "it"))
    living = COLUMN_STATS.living(parts, pa.array(["k0", "k1", "none"]))
    assert {key: decode_stats(value, "", "it").range.high for key, value in living.items()} == {"k0": 9}
    assert COLUMN_STATS.living(parts[:1], pa.array([], pa.string())) == {}


@pytest.mark.parametrize(
    ("second", "lacks"), [("abc", ""), ("abcd", ""), ("ab", "c"), ("a", "bc"), ("d", "abc"), ("", "")]
)
def test_columns_are_left_out_where_a_file_has_records_of_others_alone(second: str, lacks: str) -> None:
    keys = [*file_keys("d1", "one", "abc"), *file_keys("d1", "two", second)]
    assert columns_left_out(pa.array(keys, pa.string()), "abc") == list(lacks)
