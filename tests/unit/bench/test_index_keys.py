"""Keys of benchmarks: as many different ones as asked for, and absent ones among them."""

import numpy as np
import pytest

from bench.index_keys import CHOICES, KEYS, MIXED_WIDTHS, numbers_by_shard
from tidemark.hudi_format.record_index_hash import record_index_shard

COUNT = 5_000


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_different_numbers_differ_and_absent_ones_lie_among_them(kind: str) -> None:
    table = KEYS[kind](np.arange(COUNT, dtype=np.int64) * 2).to_pylist()
    absent = KEYS[kind](np.arange(COUNT, dtype=np.int64) * 2 + 1).to_pylist()
    assert len({*table, *absent}) == 2 * COUNT
    first, last = min(table), max(table)
    assert sum(first < key < last for key in absent) >= COUNT - 10


def test_widths_are_those_that_the_name_says() -> None:
    numbers = np.arange(COUNT, dtype=np.int64)
    widths = {kind: {len(key) for key in KEYS[kind](numbers).to_pylist()} for kind in KEYS}
    assert widths["sequential"] == {18}
    assert widths["uuid"] == {36}
    assert widths["mixed"] == set(range(MIXED_WIDTHS[0], MIXED_WIDTHS[1] + 1))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_has_distinct_positions_of_the_table(choice: str) -> None:
    chosen = CHOICES[choice](np.random.default_rng(1), COUNT, 500)
    assert len(np.unique(chosen)) == len(chosen) == 500
    assert chosen.min() >= 0
    assert chosen.max() < COUNT


def test_choices_prefer_what_their_names_say() -> None:
    random = np.random.default_rng(1)
    assert CHOICES["latest"](random, COUNT, 50).min() == COUNT - 50
    first, second = (set(CHOICES["zipf"](random, COUNT, 100).tolist()) for _ in range(2))
    uniform, other = (set(CHOICES["uniform"](random, COUNT, 100).tolist()) for _ in range(2))
    assert len(first & second) > len(uniform & other)


def test_shards_hold_every_number_once() -> None:
    shards = numbers_by_shard("uuid", COUNT, 3)
    assert sorted(np.concatenate(shards).tolist()) == list(range(0, 2 * COUNT, 2))
    for shard, numbers in enumerate(shards):
        assert (record_index_shard(KEYS["uuid"](numbers), 3) == shard).all()
