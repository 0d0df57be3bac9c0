"""Proposes columns for the record key, the partition and the ordering, best first, each with its reasons.

These are pure functions of a sample. They can only propose: a sample shows what is likely, not what is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Final

from tidemark.hudi_format.partition_paths import path_error, value_error
from tidemark.init.columns import Avro, Columns, Row, scalars

_ID_NAMES: Final = frozenset({"id", "uuid", "guid", "key", "pk"})
_ORDER_NAME: Final = re.compile(
    r"(?i)^(updated|modified|changed|event|ingest|created)?_?(at|time|timestamp|ts|on)(_?(ms|us))?$"
    r"|^(version|seq|sequence|lsn|revision|rev)(_?(no|nr|number))?$|updated|modified|changed|event_?time"
)
_DAY_NAME: Final = re.compile(r"(?i)(^|_)(day|dt|date|ds)$")
_PLACE_NAME: Final = re.compile(r"(?i)(^|_)(region|country|tenant|market|shard|site|zone)(_|$)")
_VALUES_MAX: Final = 200
_ROWS_PER_VALUE_MIN: Final = 4
_COLUMNS_PAIRED: Final = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal: the columns `fields` together. `reason` becomes the end of a comment in the file."""

    fields: tuple[str, ...]
    reason: str
    score: int


def key_candidates(
    rows: Sequence[Row], keys: Sequence[Any], columns: Columns, table: str, deletes: Sequence[Row] = ()
) -> list[Candidate]:
    """Candidates for the record key. `keys` has each record's Kafka key: a value, a mapping of fields, or
    None for a record without a key. `deletes`: records that delete a row; only their keys have to be there.
    """
    possible = [
        name
        for name in _whole_columns(rows, columns)
        # Records whose key is null or the empty text would become dead letters, deletes as well as rows.
        if _may_be_key(columns.types[name])
        and all(row[name] != "" for row in rows)
        and all(row.get(name) not in (None, "") for row in deletes)
    ]
    candidates = list(_by_kafka_key(rows, keys, possible))
    for name in possible:
        if candidate := _key(name, rows, table):
            candidates.append(candidate)
    if not any(candidate.score >= _SURE for candidate in candidates):
        candidates += _pairs(rows, possible)
    return _best_first(candidates)


def partition_candidates(
    rows: Sequence[Row], columns: Columns, key: Sequence[str], ordering: str | None
) -> list[Candidate]:
    """Candidates for the partition: columns with few values, all of which can be folder names. A column whose
    value changes within a key gets a lower score.
    """
    candidates = []
    for name in _whole_columns(rows, columns):
        if name in key or name == ordering or not _may_be_partition(columns.types[name]):
            continue
        values = {str(row[name]) for row in rows}
        if any(path_error(value) or value_error(value, several_fields=False) for value in values):
            # Records with these values would become dead letters.
            continue
        is_day = _DAY_NAME.search(name) is not None
        few = 2 <= len(values) <= _VALUES_MAX and len(values) * _ROWS_PER_VALUE_MIN <= len(rows)
        if not (few or is_day):
            continue
        moves = _changing_keys(rows, key, name)
        score = (
            (60 if is_day else 25 if _is(columns.types[name], "date") else 0)
            + (30 if _PLACE_NAME.search(name) else 0)
            + (10 if few else 0)
        )
        reason = f"{'a day, ' if is_day else ''}{_counted(len(values), 'value')} in {len(rows):,} records"
        if moves:
            score -= 50
            reason += f"; changes within {_counted(moves, 'key')} (each change moves a row)"
        candidates.append(Candidate((name,), reason, score))
    return _best_first(candidates)


def ordering_candidates(rows: Sequence[Row], columns: Columns, key: Sequence[str]) -> list[Candidate]:
    """Candidates for the ordering: times, and numbers with a name like `version`, that tell which of two
    records of a key is newer.
    """
    candidates = []
    for name in _whole_columns(rows, columns):
        avro = columns.types[name]
        if name in key or not _may_be_ordering(avro):
            continue
        moment = is_time(avro)
        named = _ORDER_NAME.search(name) is not None
        if not (moment or named):
            continue
        values = [row[name] for row in rows]
        if is_millis(avro) and any(isinstance(value, str) for value in values):
            # As an ordering it has to become a long, which takes no text such as "2024-01-01".
            continue
        rising = sum(_rises(a, b) for a, b in _in_turn(values))
        share = 100 * rising // max(len(values) - 1, 1)
        newest = 20 if re.search(r"(?i)updat|modif|chang|event|version|seq|lsn", name) else 0
        score = (40 if moment else 0) + (30 if named else 0) + newest + share // 10
        reason = f"{'a time, ' if moment else ''}rises in {share} % of the steps"
        candidates.append(Candidate((name,), reason, score))
    return _best_first(candidates)


_SURE: Final = 40


def _key(name: str, rows: Sequence[Row], table: str) -> Candidate | None:
    distinct = len({_text(row[name]) for row in rows})
    lower, singular = name.lower(), table.lower().removesuffix("s")
    score, reasons = 0, []
    if distinct == len(rows) and len(rows) > 1:
        # Not enough for `_SURE`: in a stream of changes the key is the column whose values come again.
        score += 30
        reasons.append(f"unique in all {len(rows):,} records")
    else:
        reasons.append(f"{_counted(distinct, 'value')} in {len(rows):,} records")
    if lower in _ID_NAMES or lower in (f"{singular}_id", f"{singular}id", f"{table.lower()}_id"):
        score += 45
        reasons.append("named like one")
    elif lower.endswith(("_id", "_uuid", "_key")) or name.endswith("Id"):
        score += 20
        reasons.append("named like one")
    return Candidate((name,), ", ".join(reasons), score) if score else None


def _by_kafka_key(rows: Sequence[Row], keys: Sequence[Any], possible: Sequence[str]) -> Iterator[Candidate]:
    if not rows or any(key is None for key in keys):
        return
    if all(isinstance(key, dict) for key in keys):
        names = tuple(keys[0])
        if names and all(tuple(key) == names for key in keys) and set(names) <= set(possible):
            yield Candidate(names, "the fields of the Kafka key", 100)
        return
    for name in possible:
        if all(_text(row[name]) == _text(key) for row, key in zip(rows, keys, strict=True)):
            yield Candidate((name,), f"equals the Kafka key in all {len(rows):,} records", 100)


def _pairs(rows: Sequence[Row], possible: Sequence[str]) -> Iterator[Candidate]:
    """Pairs of columns that are unique together. Only the first `_COLUMNS_PAIRED` columns are tried."""
    if len(rows) < 2:
        return
    for pair in combinations(possible[:_COLUMNS_PAIRED], 2):
        if len({tuple(_text(row[name]) for name in pair) for row in rows}) == len(rows):
            yield Candidate(pair, f"unique together in all {len(rows):,} records", 20)


def _whole_columns(rows: Sequence[Row], columns: Columns) -> list[str]:
    """The names of scalar columns that have a value in every record."""
    return [name for name in scalars(columns) if rows and all(row.get(name) is not None for row in rows)]


def _changing_keys(rows: Sequence[Row], key: Sequence[str], name: str) -> int:
    """How many keys have more than one value in the column."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        seen.setdefault(tuple(_text(row.get(field)) for field in key), set()).add(_text(row[name]))
    return sum(len(values) > 1 for values in seen.values()) if key else 0


def _best_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates by falling score; of several with the same fields only the best."""
    best: dict[tuple[str, ...], Candidate] = {}
    for candidate in candidates:
        if candidate.fields not in best or best[candidate.fields].score < candidate.score:
            best[candidate.fields] = candidate
    return sorted(best.values(), key=lambda candidate: -candidate.score)


def _may_be_key(avro: Avro) -> bool:
    """Whether a column of this type is proposed as key. Times are not, though the key generator accepts them:
    they are unique by chance only, and do not identify a row.
    """
    return avro in ("string", "int", "long") or _is(avro, "decimal")


def _may_be_partition(avro: Avro) -> bool:
    return avro in ("string", "int", "long", "boolean") or _is(avro, "date")


def _may_be_ordering(avro: Avro) -> bool:
    numbers = avro in ("int", "long", "float", "double")
    return numbers or is_time(avro)


def is_time(avro: Avro) -> bool:
    """Whether values of the type are timestamps."""
    return _is(avro, "timestamp-micros") or _is(avro, "timestamp-millis")


def is_millis(avro: Avro) -> bool:
    """Whether the type is timestamp-millis, by which Hudi's readers cannot order; they can by a long."""
    return _is(avro, "timestamp-millis")


def _is(avro: Avro, logical: str) -> bool:
    return isinstance(avro, Mapping) and avro.get("logicalType") == logical


def _in_turn(values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return pairwise(values)


def _rises(before: Any, after: Any) -> bool:
    """Whether `after` is not less than `before`. Values of different types, as broken records have, are
    compared as text.
    """
    try:
        return bool(before <= after)
    except TypeError:
        return _text(before) <= _text(after)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
