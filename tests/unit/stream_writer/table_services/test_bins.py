"""Bins of operations: few small ones, none much too large, every operation in one of them."""

from __future__ import annotations

import random

import pytest

from tidemark.hudi_format.table_services.operations import MergeOperation
from tidemark.stream_writer.table_services.bins import (
    BIN_BYTES,
    MergeBin,
    decode_bin,
    divided,
    encode_bin,
    weight,
)


def operation(number: int, size: int, logs: int = 1) -> MergeOperation:
    names = tuple(f".g{number}_{log}.log.1_0-0-0" for log in range(logs))
    return MergeOperation(
        "p", f"g{number}", "20260101000000000", f"g{number}.parquet", names, size // 2, size // 2
    )


def sizes(operations: list[MergeOperation], tasks: int) -> list[int]:
    bins = divided(operations, tasks)
    ordinals = sorted(each.ordinal for some in bins for each in some)
    assert ordinals == list(range(len(operations)))
    assert all(operations[each.ordinal] == each.operation for some in bins for each in some)
    return [sum(weight(each.operation) for each in some) for some in bins]


def test_many_small_groups_share_one_process() -> None:
    assert len(sizes([operation(number, 10_000) for number in range(60)], tasks=4)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_bins_are_even_and_no_larger_than_they_have_to_be(seed: int) -> None:
    rng = random.Random(seed)
    operations = [operation(number, rng.randrange(1, 400 << 20)) for number in range(rng.randrange(1, 40))]
    tasks = rng.randrange(1, 5)
    found = sizes(operations, tasks)
    assert found == sorted(found, reverse=True)
    largest = max(weight(each) for each in operations)
    assert found[0] <= max(BIN_BYTES, sum(found) / len(found)) + largest
    assert len(found) >= min(tasks, sum(found) // (16 << 20), len(operations))


def test_many_log_files_weigh_as_much_as_they_cost_to_open() -> None:
    operations = [operation(0, 1000, logs=5000), operation(1, 1000)]
    assert len(sizes(operations, tasks=2)) == 2


def test_a_bin_survives_its_journey() -> None:
    some = divided([operation(1, 5)], 1)[0]
    work = MergeBin("/t", "token", "20260101000000000", True, "{}", 1, "/tmp", False, tuple(some))
    assert decode_bin(encode_bin(work)) == work
