"""Infers columns and their Avro types from sample records, and tries them on the values that they were
inferred from, by the decoder that the assigners use: so no single column makes most records dead letters.

If a field has values of several kinds the most frequent kind decides the type, and a note says what happens
to the others; `tried_columns` leaves the column out if they are more than a few. Every column is nullable
except those of key, partition and ordering, because no sample proves that a value is never missing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tidemark.config.model import UnknownFields
from tidemark.console.errors import CliError
from tidemark.hudi_format.avro_types import NESTING_DEPTH_MAX, is_avro_name
from tidemark.hudi_format.schema import META_COLUMNS, TableSchema
from tidemark.record_formats.decode_json import JsonDecoder

Row = Mapping[str, Any]
Avro = Any

_DATE: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?")
_TIME_NAME: Final = re.compile(
    r"(?i)(^|_)(ts|time|timestamp|at|date|when)$|_(ms|us|millis|micros)$|timestamp|created|updated|modified"
    r"|(?-i:Time|At|Date)$"
)
_MILLIS: Final = range(10**11, 10**14)
_MICROS: Final = range(10**14, 10**17)
_LONG: Final = range(-(2**63), 2**63)
_KEYS_MAX: Final = 64
_SHOWN_MAX: Final = 20
TIMESTAMP_MICROS: Final = {"type": "long", "logicalType": "timestamp-micros"}
TIMESTAMP_MILLIS: Final = {"type": "long", "logicalType": "timestamp-millis"}
DATE: Final = {"type": "int", "logicalType": "date"}


@dataclass
class Columns:
    """The columns of a table. `types`: Avro types by column name, in the order in which the fields first
    came; `notes`: comments for the user by column name.
    """

    types: dict[str, Avro] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    _alike: dict[str, str] = field(default_factory=dict, repr=False)
    """By a name in lower case, the column that was added first with that name in any case."""

    def add(self, name: str, avro: Avro | None, note: str = "") -> None:
        """Adds a field of the records as a column. A field that cannot be a column is left out, with a note
        that begins with "left out". ``avro`` is None for a type that no column can have; ``note`` says why.
        """
        if name in META_COLUMNS or not is_avro_name(name) or name.startswith("_hoodie_"):
            avro = None
            note = "left out: a column's name has letters, digits and _, and is not Hudi's own"
        elif avro is not None and (first := self._alike.setdefault(name.lower(), name)) != name:
            avro, note = None, f"left out: Spark does not tell it from {first}"
        if note:
            self.notes[name] = note
        if avro is not None:
            self.types[name] = avro

    def leave_out(self, name: str, why: str) -> None:
        """Removes a column that was added, with a note."""
        del self.types[name]
        self.notes[name] = f"left out: {why}"

    def refuse_none(self) -> None:
        """Raises CliError when no field of the records became a column."""
        if not self.types:
            why = [f"{name} ({note})" for name, note in self.notes.items()][:_SHOWN_MAX]
            raise CliError(f"no field of the records can be a column: {', '.join(why) or 'they have none'}")

    def left_out_text(self) -> str:
        """The end of an error that lists the columns: the fields that are none, and why. "" if there
        are none.
        """
        why = [f"{name} ({note})" for name, note in self.notes.items() if name not in self.types]
        return f"; not {', '.join(why[:_SHOWN_MAX])}" if why else ""

    def avro_fields(self, required: Iterable[str]) -> list[dict[str, Any]]:
        """The columns as fields of an Avro record; those that are not required may be null."""
        needed = {name.split(".")[0] for name in required}
        return [
            {"name": name, "type": avro}
            if name in needed
            else {"name": name, "type": ["null", avro], "default": None}
            for name, avro in self.types.items()
        ]


def infer_columns(rows: Sequence[Row]) -> Columns:
    """The columns of all fields that can be stored; the others have a note that begins with "left out"."""
    columns = Columns()
    for name, values in _by_field(rows).items():
        columns.add(name, *infer_type(name, values))
    return columns


def nested_fields(types: Mapping[str, Avro | None]) -> list[dict[str, Any]]:
    """The fields of a record within a column, without those that cannot be stored (type None). Of names that
    differ only in case, which Spark takes for one, the first is kept.
    """
    first: dict[str, str] = {}
    kept = (name for name, avro in types.items() if avro is not None)
    names = [name for name in kept if first.setdefault(name.lower(), name) == name]
    return [{"name": name, "type": ["null", types[name]], "default": None} for name in names]


def infer_type(name: str, values: Sequence[Any], depth: int = 0) -> tuple[Avro | None, str]:
    """The Avro type for the values that are not null, and a note; type None if they cannot be a column."""
    kinds = Counter(_kind(value) for value in values if value is not None)
    if not kinds:
        return "string", "only null in the sample: taken for text"
    if depth > NESTING_DEPTH_MAX:
        return None, "left out: nested too deep"
    if set(kinds) == {"int", "float"}:
        return "double", ""
    kind, count = kinds.most_common(1)[0]
    other = sum(kinds.values()) - count
    note = (
        f"{other} of {sum(kinds.values())} values are no {kind}: such records become dead letters"
        if other
        else ""
    )
    chosen = [value for value in values if value is not None and _kind(value) == kind]
    avro, why = _of_kind(kind, name, chosen, depth)
    return avro, why or note


def _of_kind(kind: str, name: str, values: Sequence[Any], depth: int) -> tuple[Avro | None, str]:
    if kind == "bool":
        return "boolean", ""
    if kind == "float":
        return "double", ""
    if kind == "int":
        return _whole(name, values)
    if kind == "text":
        return _text(values), ""
    if kind == "list":
        item, note = infer_type(name, [item for value in values for item in value], depth + 1)
        return (None, note) if item is None else ({"type": "array", "items": ["null", item]}, note)
    return _object(name, values, depth)


def _whole(name: str, values: Sequence[int]) -> tuple[Avro, str]:
    if any(value not in _LONG for value in values):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": 38,
            "scale": 0,
        }, "too large for a long"
    if _TIME_NAME.search(name):
        if all(value in _MILLIS for value in values):
            return dict(TIMESTAMP_MILLIS), "whole numbers taken for milliseconds since 1970"
        if all(value in _MICROS for value in values):
            return dict(TIMESTAMP_MICROS), "whole numbers taken for microseconds since 1970"
    return "long", ""


def _text(values: Sequence[str]) -> Avro:
    if all(_DATE.fullmatch(value) for value in values):
        return dict(DATE)
    if all(_INSTANT.fullmatch(value) for value in values):
        return dict(TIMESTAMP_MICROS)
    return "string"


def _object(name: str, values: Sequence[Row], depth: int) -> tuple[Avro | None, str]:
    """A nested record; or a map, if there are more than `_KEYS_MAX` keys or one is no name, as when keys are
    data.
    """
    fields = _by_field(values)
    if not fields:
        return {
            "type": "map",
            "values": ["null", "string"],
        }, "only empty objects in the sample: taken for a map"
    if len(fields) > _KEYS_MAX or not all(map(is_avro_name, fields)):
        value, note = infer_type(name, [item for items in fields.values() for item in items], depth + 1)
        return (None, note) if value is None else ({"type": "map", "values": ["null", value]}, note)
    inner = nested_fields({key: infer_type(key, items, depth + 1)[0] for key, items in fields.items()})
    if not inner:
        return None, "left out: none of its fields can be stored"
    return {"type": "record", "name": f"{name}_{depth}", "fields": inner}, ""


def _by_field(rows: Iterable[Row]) -> dict[str, list[Any]]:
    values_of: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values_of.setdefault(str(name), []).append(value)
    return values_of


def _kind(value: Any) -> str:
    for kind, types in _KINDS:
        if isinstance(value, types):
            return kind
    return "text"


_KINDS: Final[tuple[tuple[str, Any], ...]] = (
    ("bool", bool),
    ("int", int),
    ("float", float),
    ("object", dict),
    ("list", list),
)


def scalars(columns: Columns) -> Iterator[str]:
    """The names of the columns that are no records, arrays or maps."""
    for name, avro in columns.types.items():
        if isinstance(avro, str) or "logicalType" in avro:
            yield name


# Up to this share the records with refused values count as broken, and will become dead letters.
_STRAYS_PERCENT: Final = 5


def tried_columns(rows: Sequence[Row]) -> Columns:
    """The columns of JSON rows. A column whose type refuses values becomes a string if a string takes them
    all. Otherwise, if more than `_STRAYS_PERCENT` of its values would be refused, it is left out with a note.
    """
    columns = infer_columns(rows)
    for name, avro in list(columns.types.items()):
        values = [row[name] for row in rows if row.get(name) is not None]
        refused = _refused(name, avro, values)
        if refused and avro != "string" and not _refused(name, "string", values):
            columns.types[name] = "string"
        elif 100 * refused > _STRAYS_PERCENT * len(values):
            columns.leave_out(
                name,
                f"{refused} of {len(values)} values do not fit {_named(avro)}, and no type takes all of them",
            )
    return columns


def _refused(name: str, avro: Avro, values: Sequence[Any]) -> int:
    """How many of the values a column of this type refuses."""
    fields = [{"name": name, "type": ["null", avro], "default": None}]
    schema = TableSchema.from_avro(json.dumps({"type": "record", "name": "sample", "fields": fields}))
    decoder = JsonDecoder(schema, None, UnknownFields.IGNORE)
    records = [json.dumps({name: value}).encode() for value in values]
    return len(decoder.decode(records, np.arange(len(records), dtype=np.int64)).refused)


def _named(avro: Avro) -> str:
    return avro if isinstance(avro, str) else str(avro.get("logicalType", avro["type"]))
