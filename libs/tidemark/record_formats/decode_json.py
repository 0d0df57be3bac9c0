"""Batches of JSON records to Arrow columns by the table's schema.

The decoder runs over the whole batch in C; a record that fails stops it, is set aside with its reason, and
the run goes on behind it. One bad record never spoils its batch. When a field stands twice in an object the
last one holds; fields that the schema lacks are dropped and named, or refused (``input.unknown_fields``).
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
# Each object in a record has a place for each field that is learnt: of a record with many, few are learnt.
_LARGE_BYTES: Final = 256 << 10
_LEARNT_OF_LARGE: Final = 8
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonReading(NamedTuple):
    """A column that is written in another way than `wire_types` says: its msgspec type, and to Arrow."""

    wire: Any
    convert: Convert


class JsonDecoder:
    """Decodes records of one table. Made once; holds no state between batches."""

    def __init__(
        self,
        schema: TableSchema,
        delete_field: str | None,
        unknown: UnknownFields,
        readings: Mapping[str, JsonReading] | None = None,
    ) -> None:
        """``readings``: by column. Raises `SchemaError` for a delete field that is a column of another type
        than boolean.
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
        """Decodes the values (bytes, or anything with a buffer of them); ``positions`` says which record of
        the caller's batch each of them is.
        """
        records, refused_at, refused, single = self._objects(values, positions)
        kept = np.delete(positions, refused_at)
        decoded = fill_columns(self._arrow, self._readers, records, kept, self._deletes(records))
        dropped = merged_positions([self._learnt.found(records, kept), single])
        return replace(decoded, refused=refused + decoded.refused, dropped=dropped)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        """So many bytes of memory at most decoding each value takes; close where that is above ``most``."""
        return self._memory.of(values, most, self.learnt_inner)

    @property
    def learnt_inner(self) -> int:
        """So many places every inner object has at most for fields that the schema lacks."""
        return self._learnt.inner_fields

    def _made_decoder(self, forbid: bool) -> Callable[[Any], Any]:
        unknowns = Unknowns(forbid, self._learnt.by_struct)
        return msgspec.json.Decoder(
            record_type(self._arrow, self._delete_field, unknowns, self._wires)
        ).decode

    def _objects(
        self, values: Sequence[Any], positions: Int64Array
    ) -> tuple[list[Any], list[int], list[Refusal], dict[str, Int64Array]]:
        """Records, which values are none, why not, and unknown fields outside of what is learnt."""
        records: list[Any] = []
        refused_at: list[int] = []
        refused: list[Refusal] = []
        single: dict[str, list[int]] = {}
        remaining = iter(values)
        while True:
            try:
                # What was decoded before a failure stays in the list; the iterator stands behind it.
                records.extend(map(self._decode, remaining))
                return records, refused_at, refused, {n: np.asarray(at) for n, at in single.items()}
            except _UNREADABLE as error:
                # No variable may keep the error: its traceback has this frame, and with it all values. Such a
                # cycle stays until the garbage collector comes by.
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
        """The record in spite of the error, and its unknown field if that was not learnt; or why not."""
        if self._unknown is not UnknownFields.DROP or not is_unknown_field(error):
            return None, None, json_refusal(error)
        try:
            return *self._again(value, error), None
        except _UNREADABLE as another:
            return None, None, json_refusal(another)

    def _again(self, value: Any, error: Exception) -> tuple[Any, str | None]:
        """The record whose unknown field the decoder stopped at, and the field's name if it was not learnt.

        Raises what the decoder raises for another reason.
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
    """What msgspec found wrong with a record."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        reason, detail = DeadLetterReason.NOT_JSON, f"not JSON: {text}"
    elif is_unknown_field(error):
        reason, detail = DeadLetterReason.UNKNOWN_FIELD, f"{text}, which the table's schema lacks"
    elif (found := _PATH.search(text)) is None:
        reason, detail = DeadLetterReason.WRONG_SHAPE, f"a record has to be a JSON object: {text}"
    else:
        reason, detail = DeadLetterReason.MISTYPED_FIELD, f"field {found['path']}: {text[: found.start()]}"
    return reason, detail[:_DETAIL_CHARACTERS_MAX]


def _attributes(getter: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    return list(map(getter, records))
