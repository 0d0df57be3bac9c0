"""Reads Avro records of one writer's schema, and turns them into rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.avro_indexes import without_negative_indexes
from tidemark.record_formats.avro_columns import UnresolvedError, converter, fields_beyond
from tidemark.record_formats.avro_memory import (
    CountedBytes,
    TooManyValuesError,
    has_single_bytes,
    memory_per_byte,
    memory_per_value,
)
from tidemark.record_formats.avro_schema import (
    AvroSchemaError,
    AvroType,
    count_parts,
    load_json,
    plain_schema,
    read_avro_schema,
)
from tidemark.record_formats.columns import ColumnReader, fill_columns
from tidemark.record_formats.decoded_memory import MEMORY_MAX, TOGETHER_MAX
from tidemark.record_formats.decoder import (
    DROPPED_MAX,
    MORE_FIELDS,
    BoolArray,
    DecodedRecords,
    Int64Array,
    RowTarget,
    said_true,
)
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.record_formats.wire_format import HEADER_BYTES

_DETAIL_CHARACTERS_MAX: Final = 300

Defaults = Mapping[str, pa.Array]
"""Column -> an array of one value: the default in the table's schema, for a field that the writer lacks."""


class DatumReader:
    """Reads the records of one writer's schema, one by one, within the limits of `avro_schema` and
    `avro_memory`.
    """

    def __init__(
        self, schema_id: int, avro: AvroType, item_bytes: int | None = None, memory_most: int = MEMORY_MAX
    ) -> None:
        """Prepares the schema.

        ``item_bytes``: the memory of an array's item in the table's columns, None: no columns are made.
        ``memory_most``: the memory that one record may take. Both in bytes. Raises AvroSchemaError when
        fastavro refuses the schema, or its records could take too much memory.
        """
        self._schema_id = schema_id
        self._memory_most = memory_most
        self._single_bytes = has_single_bytes(avro)
        self._memory_per_byte = memory_per_byte(avro, item_bytes)
        self._memory_per_value = memory_per_value(avro, item_bytes)
        self._values_max = memory_most // self._memory_per_value
        self.schema_parts = count_parts(avro)
        try:
            self._schema = without_negative_indexes(parse_schema(plain_schema(avro)))
        except Exception as error:
            # fastavro's errors have no common base class.
            raise AvroSchemaError(f"{type(error).__name__}: {error}") from None

    def parts(self, values: Sequence[bytes]) -> Iterator[slice]:
        """Yields slices of the values whose records together take at most `TOGETHER_MAX`, or of one value."""
        first, memory = 0, 0
        for at, value in enumerate(values):
            taken = (len(value) + 1) * self._memory_per_byte
            if at > first and memory + taken > TOGETHER_MAX:
                yield slice(first, at)
                first, memory = at, 0
            memory += taken
        if values:
            yield slice(first, len(values))

    def read(
        self, values: Sequence[bytes], positions: Sequence[int]
    ) -> tuple[list[Any], list[int], list[Refusal]]:
        """Reads framed values; ``positions``: of each value in the batch.

        Returns the records, their positions, and refusals of the other values.
        """
        records: list[Any] = []
        kept: list[int] = []
        refused: list[Refusal] = []
        schema, values_max = self._schema, self._values_max
        for value, position in zip(values, positions, strict=True):
            content: Any = BytesIO(value)
            if len(value) > values_max:
                content = CountedBytes(value, values_max, self._single_bytes)
            content.seek(HEADER_BYTES)
            try:
                record = schemaless_reader(content, schema)
                left = len(value) - content.tell()
            except TooManyValuesError:
                refused.append(self._too_hungry(position, len(value)))
                continue
            except Exception as error:
                # fastavro may raise errors of any class for bytes from outside.
                refused.append(self._refusal(position, f"{type(error).__name__}: {error}"))
                continue
            if left:
                refused.append(self._refusal(position, f"{left} bytes follow the record"))
                continue
            records.append(record)
            kept.append(position)
        return records, kept, refused

    def _too_hungry(self, position: int, size: int) -> Refusal:
        detail = (
            f"the value has {size} bytes and may take more than {self._memory_most} bytes of memory once it "
            f"is decoded: it holds more than {self._values_max} values and lengths of texts, and of schema "
            f"{self._schema_id} one may take {self._memory_per_value} bytes of memory"
        )
        return Refusal(int(position), DeadLetterReason.RECORD_TOO_LARGE, detail)

    def _refusal(self, position: int, problem: str) -> Refusal:
        detail = f"no record of schema {self._schema_id}: {problem}"
        return Refusal(int(position), DeadLetterReason.NOT_AVRO, detail[:_DETAIL_CHARACTERS_MAX])


class AvroRows:
    """Turns records of one Avro type into rows. Fields without a column are the same for all records of the
    type.
    """

    def __init__(self, record: AvroType, target: RowTarget, defaults: Defaults) -> None:
        """Raises UnresolvedError when the type cannot be read as the table's columns, so no record of it
        can.
        """
        self._columns = target.columns
        written = record.fields or {}
        if record.kind != "record":
            raise UnresolvedError("(all)", f"the writer has {record.shown}, a row has to be a record")
        named = target.delete_field
        if target.forbid_unknown:
            for name in written:
                if name != named and name not in target.columns.names:
                    raise UnresolvedError(name, "the table's schema lacks it", DeadLetterReason.UNKNOWN_FIELD)
        self._readers = [_reader(column, written, target, defaults) for column in target.columns]
        self._delete_field = named if named in written else None
        self._dropped: tuple[str, ...] = ()
        if target.unknown is UnknownFields.DROP:
            beyond = dict.fromkeys(fields_beyond(record, target.columns))
            names = [name for name in beyond if name != self._delete_field]
            self._dropped = (*names[:DROPPED_MAX], *([MORE_FIELDS] if len(names) > DROPPED_MAX else ()))
        if self._delete_field is not None and written[self._delete_field].not_null.kind != "string":
            converter(written[self._delete_field], pa.bool_(), self._delete_field, False)

    def rows(self, records: Sequence[Mapping[str, Any]], positions: Sequence[int]) -> DecodedRecords:
        """Returns one row per record whose values all fit, and refusals of the others."""
        at: Int64Array = np.asarray(positions, np.int64)
        decoded = fill_columns(self._columns, self._readers, records, at, self._deletes(records))
        return replace(decoded, dropped=dict.fromkeys(self._dropped, at))

    def _deletes(self, records: Sequence[Mapping[str, Any]]) -> BoolArray:
        if self._delete_field is None:
            return np.zeros(len(records), np.bool_)
        flags = map(itemgetter(self._delete_field), records)
        return said_true(flags, len(records))


def _reader(
    field: pa.Field, written: Mapping[str, AvroType], target: RowTarget, defaults: Defaults
) -> ColumnReader:
    if field.name not in written:
        return ColumnReader(_nothing, partial(_constant, defaults.get(field.name), field.type))
    convert = converter(written[field.name], field.type, field.name, target.forbid_unknown)
    return ColumnReader(partial(_values, itemgetter(field.name)), convert)


def _values(getter: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    return list(map(getter, records))


def _nothing(records: Sequence[Any]) -> Sequence[Any]:
    """Stands for the values of a field that the writer lacks: only their number is used."""
    return range(len(records))


def _constant(default: pa.Array | None, arrow: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if default is None:
        return pa.nulls(len(values), arrow)
    return default.take(pa.array(np.zeros(len(values), np.int64)))


def column_defaults(table_schema: str, columns: pa.Schema) -> Defaults:
    """The defaults in the text of `table.schema` that are not null. Raises AvroSchemaError,
    UnresolvedError.
    """
    avro, types = load_json(table_schema), read_avro_schema(table_schema).fields or {}
    defaults: dict[str, pa.Array] = {}
    for field in avro["fields"]:
        name, value = field["name"], field.get("default")
        if value is None or name not in columns.names:
            continue
        convert = converter(types[name], columns.field(name).type, name, False)
        try:
            defaults[name] = convert([_default(types[name].not_null, value)])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise UnresolvedError(name, f"its default {value!r} does not fit: {error}") from None
    return defaults


def _default(avro: AvroType, value: Any) -> Any:
    """The default's value. Avro schemas write a default of bytes as text with one character per byte."""
    return value.encode("latin-1") if avro.kind in ("bytes", "fixed") and isinstance(value, str) else value
