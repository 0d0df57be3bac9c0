"""The position of a change event in its source's log as one ascending number: the ordering value of its row.

=================  ========================================================================================
``source.lsn``     PostgreSQL: the log sequence number
``source.binlog``  MySQL and MariaDB: ``file`` and ``pos`` as one number, (number of the file) × 2^32 + pos
``source.scn``     Oracle: the system change number, which Debezium writes as text
``source.<name>``  any other whole number of the source block: ``source.ts_ms``, ``source.ts_us`` …
``ts_ms`` …        when the connector handled the event
=================  ========================================================================================

SQL Server's ``change_lsn`` (80 bits) fits no column; use ``source.ts_ms``. File numbers of a binlog are
valid for one server: after a failover to another server they may be smaller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tidemark.record_formats.arrow_columns import convert_column
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.logical_types import LogicalType, instants

_SOURCE: Final = "source."
_BINLOG: Final = "binlog"
_BINLOG_FILE: Final = re.compile(r"\.(\d{1,18})$")
_WHOLE: Final = re.compile(r"-?\d{1,19}")
_POSITION_BITS: Final = 32
_LOW, _HIGH = -(2**63), 2**63 - 1
_UNITS: Final = {"ms": LogicalType.MILLIS, "us": LogicalType.MICROS, "ns": LogicalType.NANOS}


@dataclass(frozen=True)
class SourcePosition:
    """The fields that give the position.

    ``fields``: their names, in the source block if ``in_source``, else in the envelope itself.
    """

    setting: str
    fields: tuple[str, ...]
    in_source: bool

    @classmethod
    def of(cls, setting: str) -> SourcePosition:
        """Parses `input.debezium.ordering`."""
        name = setting.removeprefix(_SOURCE)
        in_source = setting.startswith(_SOURCE)
        return cls(setting, ("file", "pos") if in_source and name == _BINLOG else (name,), in_source)

    def numbers(self, events: Sequence[Sequence[Any]]) -> list[int | None]:
        """Returns one number per event from its fields' values; None where they give no number."""
        if len(self.fields) == 2:
            return [_binlog_number(file, position) for file, position in events]
        return [_number(value) for (value,) in events]


@dataclass(frozen=True)
class EnvelopeOrdering:
    """The ordering column, which gets the source's position; the row's own value is ignored."""

    position: SourcePosition
    column: str
    arrow: pa.DataType

    @classmethod
    def of(cls, setting: str, column: str, arrow: pa.DataType) -> EnvelopeOrdering:
        """Checks the column's type. Raises SetupError for a column that cannot hold such numbers."""
        instant = pa.types.is_timestamp(arrow) and setting.rpartition("_")[2] in _UNITS
        if arrow != pa.int64() and not instant:
            raise SetupError(
                f"table.ordering: column {column} is {arrow}; input.debezium.ordering: {setting} fills a "
                "column of Avro type long (of ts_ms, ts_us, ts_ns also a timestamp)"
            )
        return cls(SourcePosition.of(setting), column, arrow)

    def values(self, events: Sequence[Sequence[Any]]) -> pa.Array:
        """Makes the column, one element per event; null where the event has no position."""
        numbers = self.position.numbers(events)
        if not numbers:
            return pa.nulls(0, self.arrow)
        convert = None
        if pa.types.is_timestamp(self.arrow):
            logical_type = _UNITS[self.position.setting.rpartition("_")[2]]
            convert = partial(instants, logical_type=logical_type, arrow=self.arrow)
        return convert_column(numbers, self.arrow, convert).array


def _number(value: Any) -> int | None:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if _LOW <= value <= _HIGH else None


def _binlog_number(file: Any, position: Any) -> int | None:
    """File and position as one number: mysql-bin.000003 and 154 give 3 × 2^32 + 154. None for anything else.

    A binlog position is an unsigned number of 32 bits.
    """
    match = _BINLOG_FILE.search(file) if isinstance(file, str) else None
    at = _number(position)
    if match is None or at is None or not 0 <= at < 1 << _POSITION_BITS:
        return None
    return _number((int(match[1]) << _POSITION_BITS) + at)
