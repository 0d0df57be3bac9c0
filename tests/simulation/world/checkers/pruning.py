"""What is wrong with a record of column stats, by what Hudi 1.2.0 on Spark does with it: the reader leaves a
file out of a filter in which no value between its bounds can be, or whose nulls are not counted.

Strings are compared by their UTF-8 bytes. Java puts -0.0 below 0.0, and a filter for zero is for both. NaN
is above all numbers, but a maximum of NaN is not safe: Spark caches these records in columns whose own
statistics pass over NaN. So with a NaN the maximum has to be infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_TYPES: Final = {"boolean": 2, "int": 3, "long": 4, "float": 5, "double": 6, "string": 7}
"""Avro type -> the ordinal of Hudi's `ValueType`."""
_STRING: Final = _TYPES["string"]
_META: Final = "_hoodie_"
"""Hudi's own columns begin so; all of them are strings."""


def value_types(schema: str) -> dict[str, int]:
    """Column -> ordinal, of the columns of a commit's Avro schema that have one of these types."""
    found: dict[str, int] = {}
    for field in json.loads(schema)["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        known = [_TYPES[kind] for kind in kinds if isinstance(kind, str) and kind in _TYPES]
        if len(known) == 1:
            found[field["name"]] = known[0]
    return found


def record_faults(
    record: Mapping[str, Any], values: Sequence[Any], types: Mapping[str, int]
) -> Iterator[str]:
    """``values``: of the column in all rows of the file, None for null. ``types``: as `value_types`."""
    column, kind = record["columnName"], record["valueType"]["typeOrdinal"]
    wanted = _STRING if column.startswith(_META) else types[column]
    if kind != wanted:
        yield f"its type is {kind}, and the column's is {wanted}: it cannot be merged with others"
    counts, there = (record["valueCount"], record["nullCount"]), (len(values), values.count(None))
    if counts != there:
        yield f"it counts {counts} rows and nulls, and there are {there}: IS NULL loses rows"
    low, high = (bound and bound["value"] for bound in (record["minValue"], record["maxValue"]))
    if (low is None) != (high is None):
        yield "one bound is null, and the other is not: the reader fails"
    elif high is not None and high != high:
        yield "its maximum is NaN: the rows above other values are lost"
    else:
        lost = [value for value in values if value is not None and not _is_within(low, high, value)]
        if lost:
            yield f"{low!r} to {high!r} leaves out {lost[:3]!r}"


def merged_record(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """What Hudi's readers make of two entries of one key, None for a delete: the newer replaces a deleted
    one, deletes, and replaces where it calls its bounds tight; else bounds are widened, and counts added.
    """
    if new is None or new["isDeleted"]:
        return None
    if old is None or new["isTightBound"]:
        return new
    lows, highs = (
        [each[name] for each in (old, new) if each[name] is not None] for name in ("minValue", "maxValue")
    )
    counts = {name: old[name] + new[name] for name in ("valueCount", "nullCount")}
    low, high = min(lows, key=_of_bound, default=None), max(highs, key=_of_bound, default=None)
    return {**new, **counts, "minValue": low, "maxValue": high}


def _of_bound(bound: Mapping[str, Any]) -> Any:
    return _order(bound["value"])


def _is_within(low: Any, high: Any, value: Any) -> bool:
    if low is None:
        return False
    first, last = (-0.0, 0.0) if value == 0 and isinstance(value, float) else (value, value)
    return bool(_order(low) <= _order(first) and _order(last) <= _order(high))


def _order(value: Any) -> Any:
    """What Java compares; NaN is where a filter for all above some number looks for it."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.inf, 1.0) if value != value else (value, math.copysign(1.0, value))
    return value
