"""Compactions of the column stats against a plain model of Hudi's rule: of two records of a key the newer one
counts alone where it is tight, or one of them is deleted; else bounds widen and counts add up.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.table_services import test_merge_index_shard as index_shards
from tests.unit.hudi_format.table_services.test_merge_index_shard import content_of
from tidemark.hudi_format.column_ranges import ColumnRange, StatType, ValueType, decimal_bytes
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.hfile import HFileOptions, HFileReader, write_hfile
from tidemark.hudi_format.key_digest import key_digest
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import (
    ColumnStats,
    decode_stats,
    encode_stats,
)
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.table_services.merging import index_shard, sorted_entries
from tidemark.hudi_format.table_services.merging.bounds import MergeCounts

FOLDER = ".hoodie/metadata/column_stats"
FILE_ID = "col-stats-0000-0"
BASE = f"{FILE_ID}_0-0-0_20260101000000000.hfile"
INT, DECIMAL = StatType(ValueType.INT), StatType(ValueType.DECIMAL, "9,2")
# (low, high, values, nulls); a range of nulls alone has no bounds.
Numbers = tuple[int | None, int | None, int, int]
Change = tuple[Numbers, bool, bool] | None
"""(numbers, is tight, is deleted); None: the key is in a DELETE block."""


def value_of(key: str, numbers: Numbers, tight: bool = False, deleted: bool = False) -> bytes:
    """Every other key is one of a decimal's."""
    is_decimal = ord(key[-1]) % 2
    low, high = (decimal_bytes(bound) if is_decimal and bound is not None else bound for bound in numbers[:2])
    kind = DECIMAL if is_decimal else INT
    return encode_stats(ColumnStats("f", ColumnRange("c", kind, low, high, *numbers[2:]), tight, deleted))


def numbers_of(value: bytes) -> Numbers:
    found = decode_stats(value, "", "it").range
    low, high = (
        int.from_bytes(bound, "big", signed=True) if isinstance(bound, bytes) else bound
        for bound in (found.low, found.high)
    )
    assert isinstance(low, int | None)
    assert isinstance(high, int | None)
    return low, high, found.values, found.nulls


def model(model_state: dict[str, Numbers], key: str, change: Change) -> None:
    """The rule, over plain numbers."""
    if change is None or change[2]:
        model_state.pop(key, None)
        return
    numbers, tight, _ = change
    if tight or key not in model_state:
        model_state[key] = numbers
        return
    old = model_state[key]
    lows = sorted(bound for bound in (old[0], numbers[0]) if bound is not None)
    highs = sorted(bound for bound in (old[1], numbers[1]) if bound is not None)
    model_state[key] = (
        lows[0] if lows else None,
        highs[-1] if highs else None,
        old[2] + numbers[2],
        old[3] + numbers[3],
    )


def some_numbers(rng: random.Random) -> Numbers:
    count = rng.randrange(1, 50)
    if rng.random() < 0.2:
        return None, None, count, count
    low = rng.randrange(-500, 500)
    return low, low + rng.randrange(100), count, rng.randrange(count)


def some_change(rng: random.Random) -> Change:
    if rng.random() < 0.3:
        return None
    return some_numbers(rng), rng.random() < 0.2, rng.random() < 0.2


def put_base(storage: InMemoryStorage, content: dict[str, bytes]) -> None:
    keys, options = sorted(content), HFileOptions(data_block_bytes=900)
    values = pa.array([content[key] for key in keys], pa.binary())
    data = write_hfile(pa.array(keys, pa.string()), values, metadata_record_schema(), options)
    storage.create(f"{FOLDER}/{BASE}", data)


def put_log(storage: InMemoryStorage, number: int, changes: dict[str, Change]) -> str:
    values = {key: None if change is None else value_of(key, *change) for key, change in changes.items()}
    return index_shards.put_log(storage, number, values, partition="column_stats", file_id=FILE_ID)


def merge(
    storage: InMemoryStorage, logs: list[str], scratch: Path, held: int = 1 << 30, base: str | None = BASE
) -> tuple[HFileReader, MergeCounts]:
    return index_shards.merge(storage, logs, scratch, held, base, "column_stats", FILE_ID)


@pytest.mark.parametrize("seed", range(16))
def test_the_merged_group_is_what_the_rule_says(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(index_shard, "_SMALL_BLOCK_BYTES", rng.choice([0, 100, 16 << 10]))
    monkeypatch.setattr(index_shard, "_GROUP_BYTES", rng.choice([1, 900, 1 << 20]))
    monkeypatch.setattr(sorted_entries, "_BATCH_BYTES", rng.choice([200, 1 << 18]))
    monkeypatch.setattr(sorted_entries, "RUNS_MAX", 3)
    storage = InMemoryStorage()
    keys = [f"{number:048d}" for number in range(60)]
    before = {key: some_numbers(rng) for key in rng.sample(keys, rng.choice([0, 1, 40]))}
    put_base(storage, {key: value_of(key, numbers) for key, numbers in before.items()})
    expected, logs = dict(before), []
    for number in range(rng.randrange(10)):
        changes = {key: some_change(rng) for key in rng.sample(keys, rng.choice([1, 5, 30]))}
        logs.append(put_log(storage, number, changes))
        for key, change in changes.items():
            model(expected, key, change)
    reader, counts = merge(storage, logs, tmp_path, held=rng.choice([500, 4000, 1 << 30]))
    assert {key: numbers_of(value) for key, value in content_of(reader).items()} == expected
    assert counts.rows == len(expected) == reader.entry_count
    assert counts.inserts == len(expected.keys() - before.keys())
    assert counts.deletes == len(before.keys() - expected.keys())
    sums = [key_digest(pa.array(list(content), pa.string()))[1] for content in (expected, before)]
    assert counts.digest == (len(expected), (sums[0] - sums[1]) % 2**64)


def test_a_record_that_stays_alone_is_copied_byte_for_byte(tmp_path: Path) -> None:
    storage, tight = InMemoryStorage(), (some_numbers(random.Random(1)), True, False)
    log = put_log(storage, 1, {"k0": tight, "k1": tight, "k2": None, "k3": (tight[0], False, True)})
    reader, counts = merge(storage, [log], tmp_path, base=None)
    assert content_of(reader) == {key: value_of(key, *tight) for key in ("k0", "k1")}
    assert (counts.rows, counts.inserts, counts.log_records) == (2, 2, 4)


def test_a_range_of_another_type_names_the_base_file(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    put_base(storage, {"k0": value_of("k1", (1, 2, 3, 0))})
    log = put_log(storage, 1, {"k0": ((1, 2, 3, 0), False, False)})
    with pytest.raises(CorruptFileError, match=f"{FILE_ID}_.*types DECIMAL and INT"):
        merge(storage, [log], tmp_path)
