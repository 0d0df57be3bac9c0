"""The place of a change event in its source's log as one number, and as an ordering column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.source_position import EnvelopeOrdering, SourcePosition

SEEN = pa.timestamp("us", "UTC")
NOON = datetime(2024, 2, 29, 12, 0, 0, 123000, UTC)
MILLIS = 1709208000123


@pytest.mark.parametrize(
    ("setting", "source", "number"),
    [
        ("source.lsn", [24023128], 24023128),
        ("source.scn", ["2122185"], 2122185),
        ("source.lsn", [None], None),
        ("source.lsn", [True], None),
        ("source.lsn", [2**63], None),
        ("source.lsn", ["0x5"], None),
        ("source.lsn", [1.5], None),
        ("source.binlog", ["mysql-bin.000003", 154], (3 << 32) + 154),
        ("source.binlog", ["mysql-bin.1000000", 2**32 - 1], (1_000_000 << 32) + 2**32 - 1),
        ("source.binlog", ["mysql-bin", 154], None),
        ("source.binlog", ["mysql-bin.000003", 2**32], None),
        ("source.binlog", ["mysql-bin.999999999999", 1], None),
        ("source.binlog", [None, None], None),
        ("ts_ms", [5], 5),
    ],
)
def test_a_sources_position_is_one_number(setting: str, source: Sequence[Any], number: int | None):
    assert SourcePosition.of(setting).numbers([source]) == [number]


def test_later_binlog_positions_are_greater_numbers():
    places = [
        ("b.000009", 4),
        ("b.000009", 4_000_000_000),
        ("b.000010", 4),
        ("b.999999", 1),
        ("b.1000000", 0),
    ]
    numbers = [number or 0 for number in SourcePosition.of("source.binlog").numbers(places)]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(numbers)


def test_a_position_fills_a_column_that_can_hold_it():
    instant = SEEN
    assert EnvelopeOrdering.of("source.ts_ms", "seen", instant).values([[MILLIS]]).to_pylist() == [NOON]
    assert EnvelopeOrdering.of("ts_us", "seen", instant).values([[2**62 + 1], [None]]).null_count >= 1
    with pytest.raises(SetupError, match="type long"):
        EnvelopeOrdering.of("source.lsn", "seen", instant)
    with pytest.raises(SetupError, match="type long"):
        EnvelopeOrdering.of("source.ts_ms", "name", pa.string())
