"""What every input format is to the stages: batches of records in, columns of the table's schema out.

One bad record never spoils its batch: it is refused with its reason. What is no fault of a record (a schema
registry that does not answer) raises InputWaitsError, and changes nothing: the same call may be made again.
It says how many of the records given need not wait: these can be decoded by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator
from tidemark.hudi_format.schema import IS_DELETED_FIELD, SchemaError, TableSchema
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ports import Message

DROPPED_MAX: Final = 64
"""So many fields that the table's schema lacks are told apart."""
MORE_FIELDS: Final = "(more fields)"
"""Stands for those beyond."""
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeyedDeletes:
    """Deletes whose value does not say which row: their Kafka key does, as for a null value.

    ``ordering``: of the ordering column's type, null where there is none; None: none has any.
    """

    positions: Int64Array
    ordering: pa.Array | None = None


@dataclass(frozen=True)
class DecodedRecords:
    """Sound records as columns of the user's schema, all nullable, in the order given.

    ``positions``: which record of the batch each row is; ``deletes``: it deletes its key. Every position is
    in ``positions``, in ``by_kafka_key`` or in ``refused``, in one of them, or counted in ``passed_over``.

    ``deletes_need_ordering``: a delete without an ordering value is refused; else it takes the stored one, as
    a null value does. ``deletes_have_keys_alone``: what else stands in a delete's row says nothing.
    """

    rows: pa.RecordBatch
    positions: Int64Array
    deletes: BoolArray
    refused: list[Refusal]
    deletes_need_ordering: bool = True
    deletes_have_keys_alone: bool = False
    by_kafka_key: KeyedDeletes = field(default_factory=lambda: KeyedDeletes(np.empty(0, np.int64)))
    passed_over: int = 0
    """Records that are about no row, and are right so."""
    dropped: Mapping[str, Int64Array] = field(default_factory=dict)
    """By the name of a field that the table's schema lacks: which records have it; of refused ones too."""


class RecordDecoder(Protocol):
    """Decodes records of one table. Made once; holds no state between batches but what it caches."""

    @property
    def tombstones_follow_deletes(self) -> bool:
        """A null value right behind a delete of its key only repeats it, for the topic's compaction."""
        ...

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        """Decodes the messages at these positions, none of which has a null value. Raises InputWaitsError."""
        ...

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        """So many bytes of memory at most decoding each value takes. What is above ``most`` may be less than
        that, but is above ``most``. Cheap, and never raises but for a defect.
        """
        ...

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        """The record keys that Kafka keys are. Raises InputWaitsError."""
        ...

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        """Why the record of this value came out without its key field."""
        ...


@dataclass(frozen=True)
class RowTarget:
    """What rows are decoded into: the user's columns, all nullable, and where a delete is said.

    ``delete_field`` None: nowhere. ``unknown``: what becomes of fields that the schema lacks.
    """

    columns: pa.Schema
    delete_field: str | None
    unknown: UnknownFields

    @classmethod
    def of(cls, schema: TableSchema, delete_field: str | None, unknown: UnknownFields) -> RowTarget:
        """Raises `SchemaError` for a delete field that is a column of another type than boolean."""
        columns = pa.schema([each.with_nullable(True) for each in schema.arrow])
        named = delete_field
        if named is None and IS_DELETED_FIELD in columns.names:
            named = IS_DELETED_FIELD
        if named in columns.names and columns.field(named).type != pa.bool_():
            raise SchemaError(f"input.delete_field {named} is a column of type {columns.field(named).type}")
        return cls(columns, named, unknown)

    @property
    def forbid_unknown(self) -> bool:
        """A record with a field that the schema lacks is refused."""
        return self.unknown is UnknownFields.ERROR


def said_true(flags: Iterable[Any], count: int) -> BoolArray:
    """Which of the delete field's values say that the key is deleted; Debezium's flattened events say it as
    text.
    """
    return np.fromiter((flag is True or flag == "true" for flag in flags), np.bool_, count)


def key_is_missing(name: str) -> tuple[DeadLetterReason, str]:
    """For formats in which nobody can tell a missing field from a null one."""
    return DeadLetterReason.MISSING_KEY, f"record key field {name} is null or missing"


def nothing_decoded(columns: pa.Schema, refused: list[Refusal]) -> DecodedRecords:
    """Not one row."""
    rows = pa.RecordBatch.from_pylist([], schema=columns)
    return DecodedRecords(rows, np.empty(0, np.int64), np.empty(0, np.bool_), refused)


def key_columns(generator: KeyGenerator, columns: pa.Schema) -> pa.Schema:
    """The columns that a record key is made of."""
    heads = dict.fromkeys(name.split(".")[0] for name in generator.record_key_fields)
    return pa.schema([columns.field(name) for name in heads])


def widened(decoded: DecodedRecords, columns: pa.Schema) -> DecodedRecords:
    """Rows of some of the columns as rows of all; the others are null."""
    rows = decoded.rows
    arrays = [
        rows.column(each.name) if each.name in rows.schema.names else pa.nulls(rows.num_rows, each.type)
        for each in columns
    ]
    return replace(decoded, rows=pa.RecordBatch.from_arrays(arrays, schema=columns))


def joined(parts: Sequence[DecodedRecords], columns: pa.Schema) -> DecodedRecords:
    """Several parts of one batch as one, in the order of their positions."""
    if len(parts) == 1:
        return parts[0]
    refused = [refusal for part in parts for refusal in part.refused]
    dropped = merged_positions([part.dropped for part in parts])
    filled = [part for part in parts if part.rows.num_rows]
    if not filled:
        return replace(nothing_decoded(columns, refused), dropped=dropped)
    positions = np.concatenate([part.positions for part in filled])
    order = np.argsort(positions, kind="stable")
    table = pa.Table.from_batches([part.rows for part in filled]).take(pa.array(order))
    deletes = np.concatenate([part.deletes for part in filled])[order]
    rows = table.combine_chunks().to_batches()[0]
    return DecodedRecords(rows, positions[order], deletes, refused, dropped=dropped)


def merged_positions(parts: Sequence[Mapping[str, Int64Array]]) -> dict[str, Int64Array]:
    """Positions by name, of several parts as of one."""
    found: dict[str, list[Int64Array]] = {}
    for part in parts:
        for name, positions in part.items():
            found.setdefault(name, []).append(positions)
    return {name: np.concatenate(each) if len(each) > 1 else each[0] for name, each in found.items()}
