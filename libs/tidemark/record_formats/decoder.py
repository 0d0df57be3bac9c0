"""The interface of all input formats: batches of records in, columns of the table's schema out.

A bad record is refused with its reason, and the others of its batch are decoded. If records cannot be
decoded for another reason (the schema registry does not answer), InputWaitsError is raised, and says how
many of the records, from the first on, can be decoded by themselves. It changes nothing, so the call may be
repeated.
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
"""At most so many fields that the table's schema lacks are counted by name."""
MORE_FIELDS: Final = "(more fields)"
"""The name under which all further fields are counted."""
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeyedDeletes:
    """Deletes whose key is the Kafka key, as for a null value, because their value does not name it.

    ``ordering``: per delete a value of the ordering column's type, or null; None: no delete has one.
    """

    positions: Int64Array
    ordering: pa.Array | None = None


@dataclass(frozen=True)
class DecodedRecords:
    """Decoded records as columns of the user's schema, all nullable, in the order given.

    ``positions``: per row the position of its record in the batch. ``deletes``: whether the row deletes its
    key. Every position given is in exactly one of ``positions``, ``by_kafka_key`` and ``refused``, or is
    counted in ``passed_over``.

    ``deletes_need_ordering``: a delete without an ordering value is refused; otherwise it takes the stored
    value, as a null value does. ``deletes_have_keys_alone``: only the key fields of a delete's row are
    valid.
    """

    rows: pa.RecordBatch
    positions: Int64Array
    deletes: BoolArray
    refused: list[Refusal]
    deletes_need_ordering: bool = True
    deletes_have_keys_alone: bool = False
    by_kafka_key: KeyedDeletes = field(default_factory=lambda: KeyedDeletes(np.empty(0, np.int64)))
    passed_over: int = 0
    """Number of records that are valid and about no row."""
    dropped: Mapping[str, Int64Array] = field(default_factory=dict)
    """Name of a field that the table's schema lacks -> positions of the records, also refused ones, that
    have it.
    """


class RecordDecoder(Protocol):
    """Decodes records of one table. Made once; between batches it holds only caches."""

    @property
    def tombstones_follow_deletes(self) -> bool:
        """Whether a null value right behind a delete of its key only repeats it, for the topic's
        compaction.
        """
        ...

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        """Decodes the messages at these positions, none of which has a null value. Raises InputWaitsError."""
        ...

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        """The most bytes of memory that decoding each value takes.

        An estimate above ``most`` need not be complete: it only has to be above ``most``. Cheap; raises
        only in case of a defect.
        """
        ...

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        """The record keys of Kafka keys, or why one is none. Raises InputWaitsError."""
        ...

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        """Why the record with this value was decoded without its key field: reason and detail."""
        ...


@dataclass(frozen=True)
class RowTarget:
    """The columns to decode into (the user's, all nullable), and the field that marks a delete.

    ``delete_field`` None: there is no such field. ``unknown``: what happens to fields that the schema lacks.
    """

    columns: pa.Schema
    delete_field: str | None
    unknown: UnknownFields

    @classmethod
    def of(cls, schema: TableSchema, delete_field: str | None, unknown: UnknownFields) -> RowTarget:
        """The target of a table and its configuration.

        ``delete_field`` None: `_hoodie_is_deleted`, if the table has that column. Raises SchemaError for a
        delete field that is a column of another type than boolean.
        """
        columns = pa.schema([column.with_nullable(True) for column in schema.arrow])
        named = delete_field
        if named is None and IS_DELETED_FIELD in columns.names:
            named = IS_DELETED_FIELD
        if named in columns.names and columns.field(named).type != pa.bool_():
            raise SchemaError(f"input.delete_field {named} is a column of type {columns.field(named).type}")
        return cls(columns, named, unknown)

    @property
    def forbid_unknown(self) -> bool:
        """Whether a record with a field that the schema lacks is refused."""
        return self.unknown is UnknownFields.ERROR


def said_true(flags: Iterable[Any], count: int) -> BoolArray:
    """Whether each value of the delete field means a delete: true, or "true" as in Debezium's flattened
    events.
    """
    return np.fromiter((flag is True or flag == "true" for flag in flags), np.bool_, count)


def key_is_missing(name: str) -> tuple[DeadLetterReason, str]:
    """The refusal of formats in which a missing field cannot be told from a null one."""
    return DeadLetterReason.MISSING_KEY, f"record key field {name} is null or missing"


def nothing_decoded(columns: pa.Schema, refused: list[Refusal]) -> DecodedRecords:
    """The result without any row."""
    rows = pa.RecordBatch.from_pylist([], schema=columns)
    return DecodedRecords(rows, np.empty(0, np.int64), np.empty(0, np.bool_), refused)


def key_columns(generator: KeyGenerator, columns: pa.Schema, *, with_partition: bool = False) -> pa.Schema:
    """The columns from which the record key is made, and the partition path if ``with_partition``."""
    names = [*generator.record_key_fields, *(generator.partition_fields if with_partition else ())]
    heads = dict.fromkeys(name.split(".")[0] for name in names)
    return pa.schema([columns.field(name) for name in heads])


def widened(decoded: DecodedRecords, columns: pa.Schema) -> DecodedRecords:
    """Adds the columns that the rows lack, as nulls."""
    rows = decoded.rows
    arrays = [
        rows.column(column.name) if column.name in rows.schema.names else pa.nulls(rows.num_rows, column.type)
        for column in columns
    ]
    return replace(decoded, rows=pa.RecordBatch.from_arrays(arrays, schema=columns))


def joined(parts: Sequence[DecodedRecords], columns: pa.Schema) -> DecodedRecords:
    """Joins parts of one batch; rows are in the order of their positions."""
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
    """Joins the positions of several parts, by name."""
    by_name: dict[str, list[Int64Array]] = {}
    for part in parts:
        for name, positions in part.items():
            by_name.setdefault(name, []).append(positions)
    return {name: np.concatenate(at) if len(at) > 1 else at[0] for name, at in by_name.items()}
