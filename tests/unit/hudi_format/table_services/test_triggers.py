"""When a table service is due, by the stats of slices."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidemark.hudi_format.table_services.triggers import (
    DataCompactionRule,
    IndexCompactionRule,
)

MIB = 1 << 20
MINUTE = 60_000
NOW = 100 * MINUTE


@dataclass(frozen=True)
class Load:
    base_bytes: int
    log_count: int
    log_bytes: int
    oldest_log_ms: int | None


@pytest.mark.parametrize(
    ("load", "score"),
    [
        (Load(100, 0, 0, None), 0.0),
        (Load(10 * MIB, 1, 5 * MIB // 2, NOW), 0.5),
        (Load(10 * MIB, 1, 5 * MIB, NOW), 1.0),
        (Load(1000, 1, MIB // 4, NOW), 0.25),
        (Load(1000 * MIB, 1, 128 * MIB, NOW), 2.0),
        (Load(1000 * MIB, 40, 10, NOW), 1.0),
        (Load(1000 * MIB, 1, 10, NOW - 45 * MINUTE), 1.5),
    ],
)
def test_a_file_group_is_due_by_the_value_that_is_reached_most(load, score):
    assert DataCompactionRule().score(load, NOW) == pytest.approx(score, rel=1e-3)


def test_log_files_without_base_file_are_due_from_a_mebibyte_on():
    assert DataCompactionRule().score(Load(0, 1, MIB, NOW), NOW) == 1.0


def reason(*loads: Load, since_last_ms: int | None = None) -> str | None:
    return IndexCompactionRule(ratio_from_bytes=0).reason(loads, NOW, since_last_ms)


def test_the_index_is_due_by_bytes_files_or_age():
    base = Load(1000, 0, 0, None)
    assert reason(base) is None
    assert reason(base, Load(1000, 1, 599, NOW)) is None
    assert reason(base, Load(1000, 1, 600, NOW)) == "log files have 600 bytes, base files 2000"
    assert reason(Load(1000, 120, 1, NOW)) == "a shard has 120 log files"
    assert reason(Load(1000, 1, 1, NOW - 15 * MINUTE + 1)) is None
    assert reason(Load(1000, 1, 1, NOW - 15 * MINUTE)) == "the oldest log file is 900 s old"


def test_log_files_that_a_reader_merges_in_no_time_do_not_make_the_index_due_by_their_part():
    """Else a new table is compacted at its first commit, and a small one every minute."""
    rule = IndexCompactionRule()
    assert rule.reason([Load(0, 1, MIB - 1, NOW)], NOW, None) is None
    assert rule.reason([Load(0, 1, MIB - 1, NOW), Load(0, 1, 1, NOW)], NOW, None) is not None
    assert rule.reason([Load(10 * MIB, 1, 3 * MIB - 1, NOW)], NOW, None) is None
    assert rule.reason([Load(1000, 120, 1, NOW)], NOW, None) == "a shard has 120 log files"


def test_the_index_is_not_due_again_at_once():
    heavy = Load(10, 1, 600, NOW)
    assert reason(heavy, since_last_ms=MINUTE - 1) is None
    assert reason(heavy, since_last_ms=MINUTE) is not None


def test_log_files_of_the_bootstrap_have_no_age():
    """Their instants are counters. They become due with the first real log file."""
    assert reason(Load(1000, 1, 80, 0)) is None
