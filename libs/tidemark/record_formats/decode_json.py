"""Decodes batches of JSON records to Arrow columns of the table's schema.

msgspec decodes the whole batch in C. A record that fails stops it; the record is refused with its reason, and
decoding goes on behind it. If an object has a field twice, the last one is taken. Fields that the schema
lacks are dropped and counted by name, or their records refused (`input.unknown_fields`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.schema import TableSchema
from tidemark.record_formats.arrow_columns import Convert
from tidemark.record_formats.columns import ColumnReader, fill_columns
from tidemark.record_formats.decoder import (
    DROPPED_MAX,
    MORE_FIELDS,
    BoolArray,
    DecodedRecords,
    Int64Array,
    RowTarget,
    merged_positions,
    said_true,
)
from tidemark.record_formats.json_memory import JsonMemory
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.record_formats.unknown_json import LearntFields, is_unknown_field
from tidemark.record_formats.wire_types import Unknowns, attribute, record_type

_PATH: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_DETAIL_CHARACTERS_MAX: Final = 300
# Each inner object has a place for each learnt field, so a large record may make a decoder learn only a few.
_LARGE_BYTES: Final = 256 << 10
_LEARNT_OF_LARGE: Final = 8
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonReading(NamedTuple):
    """How a column is read that is not written as `wire_types` says: its msgspec type, and its conversion."""

    wire: Any
    convert: Convert


class JsonDecoder:
    """Decodes records of one table. Made once; between batches it keeps only the unknown fields it has
    learnt.
    """

    def __init__(
        self,
        schema: TableSchema,
        delete_field: str | None,
        unknown: UnknownFields,
        readings: Mapping[str, JsonReading] | None = None,
    ) -> None:
        """``readings``: by column name. Raises SchemaError for a delete field that is a column of another
        type than boolean.
        """
        target = RowTarget.of(schema, delete_field, unknown)
        self._arrow, named = target.columns, target.delete_field
        self._unknown = unknown
        self._delete_field = named
        self._delete_at = None
        if named is not None:
            at = self._arrow.get_field_index(named)
            self._delete_at = attrgetter(attribute(at if at >= 0 else len(self._arrow)))
        special = readings or {}
        self._wires = {name: reading.wire for name, reading in special.items()}
        self._learnt = LearntFields(self._arrow)
        self._memory = JsonMemory(self._arrow)
        self._decode = self._made_decoder(unknown is not UnknownFields.IGNORE)
        self._lenient = self._made_decoder(False)
        self._readers = [
            ColumnReader(
                partial(_attributes, attrgetter(attribute(i))),
                special[name].convert if name in special else None,
            )
            for i, name in enumerate(self._arrow.names)
        ]

    def decode(self, values: Sequence[Any], positions: Int64Array) -> DecodedRecords:
        """Decodes the values (bytes, or any buffer); ``positions``: of each value's record in the caller's
        batch.
        """
        records, refused_at, refused, single = self._objects(values, positions)
        kept = np.delete(positions, refused_at)
        decoded = fill_columns(self._arrow, self._readers, records, kept, self._deletes(records))
        dropped = merged_positions([self._learnt.found(records, kept), single])
        return replace(decoded, refused=refused + decoded.refused, dropped=dropped)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        """The most bytes of memory that decoding each value takes; exact enough where that is above
        ``most``.
        """
        return self._memory.of(values, most, self.learnt_inner)

    @property
    def learnt_inner(self) -> int:
        """The most places that an inner object has for fields that the schema lacks."""
        return self._learnt.inner_fields

    def _made_decoder(self, forbid: bool) -> Callable[[Any], Any]:
        unknowns = Unknowns(forbid, self._learnt.by_struct)
        return msgspec.json.Decoder(
            record_type(self._arrow, self._delete_field, unknowns, self._wires)
        ).decode

    def _objects(
        self, values: Sequence[Any], positions: Int64Array
    ) -> tuple[list[Any], list[int], list[Refusal], dict[str, Int64Array]]:
        """Decodes all values.

        Returns the records, the indexes of the other values, their refusals, and the positions of records
        with unknown fields that were not learnt, by field.
        """
        records: list[Any] = []
        refused_at: list[int] = []
        refused: list[Refusal] = []
        single: dict[str, list[int]] = {}
        remaining = iter(values)
        while True:
            try:
                # After a failure the list has the records before it, and the iterator goes on behind it.
                records.extend(map(self._decode, remaining))
                return records, refused_at, refused, {n: np.asarray(at) for n, at in single.items()}
            except _UNREADABLE as error:
                # No variable may keep the error: its traceback refers to this frame and so to all values,
                # and such a cycle is freed only by the garbage collector.
                at = len(records) + len(refused_at)
                record, unlearnt, reason = self._judged(values[at], error)
            if reason is not None:
                refused_at.append(at)
                refused.append(Refusal(int(positions[at]), *reason))
                continue
            records.append(record)
            if unlearnt is not None:
                single.setdefault(unlearnt, []).append(int(positions[at]))

    def _judged(
        self, value: Any, error: Exception
    ) -> tuple[Any, str | None, tuple[DeadLetterReason, str] | None]:
        """Decodes a value that failed once more, if its only fault is an unknown field that may be dropped.

        Returns the record and its unknown field if that was not learnt, or the reason and detail of a
        refusal.
        """
        if self._unknown is not UnknownFields.DROP or not is_unknown_field(error):
            return None, None, json_refusal(error)
        try:
            return *self._again(value, error), None
        except _UNREADABLE as another:
            return None, None, json_refusal(another)

    def _again(self, value: Any, error: Exception) -> tuple[Any, str | None]:
        """Learns the record's unknown fields one by one, until a decoder takes it.

        Returns the record, and the name of its last unknown field if that was not learnt. Raises what the
        decoder raises for another reason.
        """
        name, learnt = self._learnt.learn(error)
        most = _LEARNT_OF_LARGE if len(value) > _LARGE_BYTES else DROPPED_MAX
        while learnt:
            most -= 1
            self._decode, self._lenient = self._made_decoder(True), self._made_decoder(False)
            try:
                return self._decode(value), None
            except msgspec.ValidationError as another:
                if not is_unknown_field(another):
                    raise
                name, learnt = self._learnt.learn(another, most > 0)
        if self._learnt.is_full:
            self._decode, name = self._lenient, MORE_FIELDS
        return self._lenient(value), name

    def _deletes(self, records: list[Any]) -> BoolArray:
        if self._delete_at is None:
            return np.zeros(len(records), np.bool_)
        flags = map(self._delete_at, records)
        return said_true(flags, len(records))


def json_refusal(error: Exception) -> tuple[DeadLetterReason, str]:
    """The reason and detail for an error of msgspec's."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        reason, detail = DeadLetterReason.NOT_JSON, f"not JSON: {text}"
    elif is_unknown_field(error):
        reason, detail = DeadLetterReason.UNKNOWN_FIELD, f"{text}, which the table's schema lacks"
    elif (place := _PATH.search(text)) is None:
        reason, detail = DeadLetterReason.WRONG_SHAPE, f"a record has to be a JSON object: {text}"
    else:
        reason, detail = DeadLetterReason.MISTYPED_FIELD, f"field {place['path']}: {text[: place.start()]}"
    return reason, detail[:_DETAIL_CHARACTERS_MAX]


def _attributes(getter: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    return list(map(getter, records))
