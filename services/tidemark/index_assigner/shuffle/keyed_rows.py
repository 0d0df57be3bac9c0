"""Turns input records into keyed rows, which the shuffle stage publishes and the assign stage tags.

Columns are `epoch_protocol.batches.KEYED_COLUMNS` and the user's. Every record becomes either one row or one
refusal, except records that are about no row (`KeyedRows.passed_over`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.config.model import UnknownFields
from tidemark.epoch_protocol.batches import KEYED_COLUMNS, KeyedOp, with_user_columns
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator, KeyProblem
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.partition_paths import map_distinct
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.indexed_values import (
    IndexedColumns,
    no_indexed_columns,
    values_too_long,
)
from tidemark.index_assigner.shuffle.judge import Judge
from tidemark.index_assigner.shuffle.keyed_parts import (
    DecodeParts,
    Int32Array,
    KeyedRows,
    PlacedRows,
    in_arrival_order,
    joined,
    large_rows,
    null_values_behind,
    of_taken,
    repeated_deletes,
    shifted,
)
from tidemark.index_assigner.shuffle.partition_folders import PartitionFolders, PathProblem
from tidemark.index_assigner.shuffle.row_identity import IN_FIELD, IN_KEY, RowIdentity
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import DecodedRecords, RecordDecoder
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.plain_json import PlainJson
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ports import Message

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_DETAIL_CHARACTERS_MAX: Final = 300
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class RecordRules:
    """The properties of a table and its configuration that decide how a record is read. Sizes in bytes."""

    schema: TableSchema
    generator: KeyGenerator
    ordering: OrderingField | None
    num_shards: int
    lanes: int
    record_bytes_max: int
    delete_field: str | None = None
    unknown_fields: UnknownFields = UnknownFields.DROP
    folder_problem: PathProblem = lambda _: None
    row_bytes_max: int | None = None
    """Limit of one row: a record above it is refused, because no message could hold it. None: no limit."""
    rows_bytes_max: int | None = None
    """Limit of the rows of one call: once they take so much, the other records wait. None: no limit."""
    indexed_columns: IndexedColumns = no_indexed_columns
    index_kind: IndexKind = IndexKind.GLOBAL
    """With a partitioned index a delete has to name its partition."""


class RecordKeyer:
    """Decodes and keys batches of input records. Made once; holds no state between batches."""

    def __init__(
        self,
        rules: RecordRules,
        decoder: RecordDecoder | None = None,
        bound: AbstractContextManager[None] | None = None,
    ) -> None:
        """Without a ``decoder`` records are plain JSON. ``bound``: entered around each part's decoding."""
        self._bound = bound or nullcontext()
        self._rules = rules
        has_partitions = bool(rules.generator.partition_fields)
        self._identity = RowIdentity(rules.index_kind, has_partitions, rules.num_shards, rules.lanes)
        self._decoder = decoder or PlainJson(
            JsonDecoder(rules.schema, rules.delete_field, rules.unknown_fields), rules.generator
        )
        self._parts = DecodeParts(self._decoder, rules.record_bytes_max)
        self.table_schema = rules.schema
        self.rows_bytes_max = rules.rows_bytes_max
        self._folders = PartitionFolders(rules.folder_problem, rules.index_kind)
        self.schema = with_user_columns(KEYED_COLUMNS, rules.schema.arrow)

    def key_records(self, messages: Sequence[Message]) -> KeyedRows:
        """Turns the messages into keyed rows; `KeyedRows.records` says how many of them.

        No record makes it raise. When decoding a part raises, or gives rows that no reader of a batch would
        accept, the part is halved until the record is found, and that record is refused.

        Decoded values take many times the space of their bytes. So about `BYTES_AT_ONCE` are decoded at a
        time, and fewer where they take more memory (`DecodeParts`). Records are left for a later call once
        the rows take ``rows_bytes_max``, and from the first record on that cannot be decoded now. Raises
        InputWaitsError when that is the very first record; the call may be repeated with the same messages.
        """
        parts: list[KeyedRows] = []
        made, done = 0, 0
        for first, after in self._parts.ranges(messages):
            try:
                keyed, records = self._key_or_halve(messages[first:after], first)
            except InputWaitsError:
                if not parts:
                    raise
                break
            parts += keyed
            made, done = made + sum(part.rows.nbytes for part in keyed), first + records
            if done < after or self._is_enough(made):
                break
        return replace(parts[0] if len(parts) == 1 else joined(parts), records=done)

    def _is_enough(self, made: int) -> bool:
        return self._rules.rows_bytes_max is not None and made >= self._rules.rows_bytes_max

    def _key_or_halve(self, messages: Sequence[Message], first: int) -> tuple[list[KeyedRows], int]:
        """Keys the messages, halved where decoding raises; positions count from ``first`` on.

        Returns the parts in order, and how many records they cover: all up to the first that has to wait.
        Raises InputWaitsError when the first record has to wait.
        """
        while True:
            try:
                with self._bound:
                    return [shifted(self._key(messages), first)], len(messages)
            except InputWaitsError as error:
                if not error.before:
                    raise
                messages = messages[: error.before]
            except Exception as error:
                # Decoders may raise errors of any class for bytes from outside.
                if len(messages) == 1:
                    return [self._undecodable(messages[0], first, error)], 1
                break
        half = len(messages) // 2
        parts, done = self._key_or_halve(messages[:half], first)
        if done == half:
            with suppress(InputWaitsError):
                behind, records = self._key_or_halve(messages[half:], first + half)
                parts, done = parts + behind, done + records
        return parts, done

    def _undecodable(self, message: Message, position: int, error: Exception) -> KeyedRows:
        place = f"{message.topic}[{message.partition}] offset {message.offset}"
        _log.error("%s cannot be decoded, and goes to the dead letters", place, exc_info=error)
        detail = f"decoding raised {type(error).__name__}: {error}"[:_DETAIL_CHARACTERS_MAX]
        rows = pa.RecordBatch.from_pylist([], schema=self.schema)
        refused = [Refusal(position, DeadLetterReason.UNDECODABLE, detail)]
        return KeyedRows(rows, np.empty(0, np.int32), np.empty(0, np.int64), refused)

    def _key(self, messages: Sequence[Message]) -> KeyedRows:
        refused: list[Refusal] = []
        typed, empty = self._split(messages, refused)
        decoded = self._decoder.decode(messages, typed)
        refused += decoded.refused
        upserted = self._typed_rows(messages, decoded, refused)
        repeating = empty[:0]
        if self._identity.needs_partition and self._decoder.tombstones_follow_deletes:
            # A null value names no partition. Right behind its change event, which did, it is about no row.
            repeating = null_values_behind(messages, empty, decoded)
            empty = np.setdiff1d(empty, repeating)
        deleted = self._deletes_by_kafka_key(messages, decoded, empty, upserted, refused)
        rows, positions = in_arrival_order([upserted, deleted])
        shards = self._identity.shards(rows)
        at = rows.schema.get_field_index("_tm_shard")
        rows = rows.set_column(at, rows.schema.field(at), pa.array(shards))
        # The next stage validates rows as well. Here an invalid row can still be traced to its record.
        rows.validate(full=True)
        rows, positions, shards = self._within_messages(rows, positions, shards, refused)
        refused.sort(key=lambda refusal: refusal.position)
        dropped = of_taken(decoded.dropped, refused)
        lanes = shards % np.int32(self._rules.lanes)
        return KeyedRows(rows, lanes, positions, refused, decoded.passed_over + len(repeating), dropped)

    def _within_messages(
        self, rows: pa.RecordBatch, positions: Int64Array, shards: Int32Array, refused: list[Refusal]
    ) -> tuple[pa.RecordBatch, Int64Array, Int32Array]:
        """Refuses the rows that are too large for a message, and returns the others."""
        limit = self._rules.row_bytes_max
        large = large_rows(rows, limit) if limit is not None else {}
        if not large:
            return rows, positions, shards
        for at, size in large.items():
            detail = f"the record takes {size} bytes as a row, limits.message_bytes leaves room for {limit}"
            refused.append(Refusal(int(positions[at]), DeadLetterReason.RECORD_TOO_LARGE, detail))
        kept = np.delete(np.arange(rows.num_rows), list(large))
        return rows.take(pa.array(kept)), positions[kept], shards[kept]

    def _split(self, messages: Sequence[Message], refused: list[Refusal]) -> tuple[Int64Array, Int64Array]:
        """Positions of records to decode, and of those with a null value; refuses too large values."""
        sizes = np.fromiter(
            (-1 if message.value is None else len(message.value) for message in messages),
            np.int64,
            len(messages),
        )
        limit = self._rules.record_bytes_max
        for at in np.flatnonzero(sizes > limit):
            detail = f"the value has {sizes[at]} bytes, limits.record_bytes is {limit}"
            refused.append(Refusal(int(at), DeadLetterReason.RECORD_TOO_LARGE, detail))
        typed = (sizes >= 0) & (sizes <= limit)
        if len(messages) == 1 and typed[0] and (why := self._parts.why_too_large(messages[0])) is not None:
            refused.append(Refusal(0, DeadLetterReason.RECORD_TOO_LARGE, why))
            typed[0] = False
        return np.flatnonzero(typed), np.flatnonzero(sizes < 0)

    def _typed_rows(
        self, messages: Sequence[Message], decoded: DecodedRecords, refused: list[Refusal]
    ) -> PlacedRows:
        table = pa.Table.from_batches([decoded.rows])
        judge = Judge(decoded.positions, refused)
        keys = self._rules.generator.record_keys(table)
        self._judge_keys(judge, messages, decoded, keys)
        ordering = self._ordering(judge, decoded)
        partitions = self._partitions(judge, table, decoded)
        self._judge_required(judge, decoded)
        for index in values_too_long(self._rules.indexed_columns(), decoded.rows, keys.keys):
            judge.refuse(index.rows & ~decoded.deletes, DeadLetterReason.INDEXED_VALUE_TOO_LONG, index.why)
        ops = np.where(decoded.deletes, np.int8(KeyedOp.DELETE), np.int8(KeyedOp.UPSERT))
        ours = [keys.keys, _no_shards(len(ops)), partitions, ordering, pa.array(ops)]
        sound = ~judge.refused
        rows = self._assemble(ours, decoded.rows.columns, sound)
        return rows, decoded.positions[sound]

    def _deletes_by_kafka_key(
        self,
        messages: Sequence[Message],
        decoded: DecodedRecords,
        empty: Int64Array,
        upserted: PlacedRows,
        refused: list[Refusal],
    ) -> PlacedRows:
        """Rows of deletes by Kafka key, mostly null values; their partition is null if the table has any."""
        known = self._known_ordering(decoded, upserted)
        if self._decoder.tombstones_follow_deletes:
            known |= repeated_deletes(messages, empty, known)
        positions = np.sort(np.concatenate([empty, decoded.by_kafka_key.positions]))
        count = len(positions)
        judge = Judge(positions, refused)
        kafka_keys = [messages[i].key for i in positions]
        without = np.fromiter((not key for key in kafka_keys), np.bool_, count)
        judge.refuse(
            without,
            DeadLetterReason.NULL_VALUE_WITHOUT_KEY,
            "a delete by its Kafka key, and there is no Kafka key",
        )
        if self._identity.needs_partition:
            reason = DeadLetterReason.DELETE_WITHOUT_PARTITION
            judge.refuse(np.ones(count, np.bool_), reason, IN_KEY)
        made = self._record_keys(kafka_keys, positions)
        self._judge_key_texts(judge, made)
        partition = None if self._rules.generator.partition_fields else ""
        ours = [
            made.keys,
            _no_shards(count),
            pa.array([partition] * count, pa.string()),
            pa.array([known.get(i) for i in positions.tolist()], pa.int64()),
            pa.array(np.full(count, KeyedOp.DELETE, np.int8)),
        ]
        user = [pa.nulls(count, field.type) for field in self._rules.schema.arrow]
        sound = ~judge.refused
        return self._assemble(ours, user, sound), positions[sound]

    def _record_keys(self, kafka_keys: Sequence[bytes | None], positions: Int64Array) -> KeyColumns:
        try:
            return self._decoder.record_keys(kafka_keys)
        except InputWaitsError as error:
            raise InputWaitsError(str(error), int(positions[error.before])) from error

    def _known_ordering(self, decoded: DecodedRecords, upserted: PlacedRows) -> dict[int, int]:
        """Position -> ordering value of deletes that have one, where the decoder's null values follow
        deletes.
        """
        field, by_key = self._rules.ordering, decoded.by_kafka_key
        known: dict[int, int] = {}
        if field is None or not self._decoder.tombstones_follow_deletes:
            return known
        if by_key.ordering is not None and len(by_key.positions):
            values = field.to_int64_or_lowest(by_key.ordering)
            there = np.asarray(by_key.ordering.is_valid())
            known.update(zip(by_key.positions[there].tolist(), values[there].tolist(), strict=True))
        rows, positions = upserted
        ordering = rows.column("_tm_ordering")
        typed = np.asarray(rows.column("_tm_op")) == KeyedOp.DELETE
        typed &= np.asarray(ordering.is_valid())
        values = np.asarray(ordering.fill_null(0))
        known.update(zip(positions[typed].tolist(), values[typed].tolist(), strict=True))
        return known

    def _assemble(self, ours: list[pa.Array], user: list[pa.Array], sound: BoolArray) -> pa.RecordBatch:
        all_sound = bool(sound.all())
        mask = pa.array(sound)
        columns = [c if all_sound else c.filter(mask) for c in (*ours, *user)]
        at = self.schema.get_field_index("_tm_partition")
        columns[at] = columns[at].dictionary_encode()
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _judge_keys(
        self, judge: Judge, messages: Sequence[Message], decoded: DecodedRecords, keys: KeyColumns
    ) -> None:
        for name in self._rules.generator.record_key_fields:
            field = decoded.rows.schema.get_field_index(name)
            if field < 0 or self._rules.schema.arrow.field(name).nullable:
                continue
            missing = np.asarray(decoded.rows.column(field).is_null())
            for row in np.flatnonzero(missing & ~judge.refused):
                value = messages[decoded.positions[row]].value or b""
                judge.refuse_row(row, *self._decoder.without_key(value, name))
        self._judge_key_texts(judge, keys, [messages[i].value for i in decoded.positions])

    def _judge_key_texts(self, judge: Judge, keys: KeyColumns, values: Sequence[bytes | None] = ()) -> None:
        for row in np.flatnonzero(np.asarray(keys.error.is_valid()) & ~judge.refused):
            text, problem = keys.error[row].as_py(), keys.problem[row].as_py()
            if problem == KeyProblem.TOO_LONG:
                judge.refuse_row(row, DeadLetterReason.KEY_TOO_LONG, text)
            elif problem == KeyProblem.EMPTY and values:
                name = self._rules.generator.record_key_fields[0]
                reason, _ = self._decoder.without_key(values[row] or b"", name)
                judge.refuse_row(row, reason, text)
            else:
                judge.refuse_row(row, DeadLetterReason.BAD_KEY, text)

    def _ordering(self, judge: Judge, decoded: DecodedRecords) -> pa.Array:
        field, rows = self._rules.ordering, decoded.rows
        if field is None:
            return pa.nulls(rows.num_rows, pa.int64())
        column = rows.column(field.name)
        missing = np.asarray(column.is_null())
        if not decoded.deletes_need_ordering:
            judge.refuse(missing & ~decoded.deletes, DeadLetterReason.NULL_ORDERING, _without_ordering(field))
            missing = missing | decoded.deletes
            return pa.array(field.to_int64_or_lowest(column), mask=missing)
        judge.refuse(missing, DeadLetterReason.NULL_ORDERING, _without_ordering(field))
        return pa.array(field.to_int64_or_lowest(column), mask=missing)

    def _partitions(self, judge: Judge, table: pa.Table, decoded: DecodedRecords) -> pa.Array:
        """Partition paths; null for a delete that does not name its key's partition."""
        made = self._rules.generator.partition_paths(table)
        unknown = np.zeros(table.num_rows, np.bool_)
        for name in self._rules.generator.partition_fields:
            column = table.column(name.split(".")[0])
            unknown |= np.asarray(column.is_null())
            if not self._rules.schema.arrow.field(name.split(".")[0]).nullable:
                missing = np.asarray(column.is_null()) & ~decoded.deletes
                judge.refuse(
                    missing, DeadLetterReason.BAD_PARTITION, f"partition field {name} is null or missing"
                )
        if self._rules.generator.partition_fields and decoded.deletes_have_keys_alone:
            unknown[:] = True
        unknown &= decoded.deletes
        if self._identity.needs_partition:
            detail = IN_FIELD.format(" or ".join(self._rules.generator.partition_fields))
            judge.refuse(unknown, DeadLetterReason.DELETE_WITHOUT_PARTITION, detail)
        for row in np.flatnonzero(np.asarray(made.error.is_valid()) & ~unknown & ~judge.refused):
            judge.refuse_row(row, DeadLetterReason.BAD_PARTITION, made.error[row].as_py())
        if self._rules.generator.partition_fields:
            folders = map_distinct(pc.fill_null(made.keys, ""), self._folders.error)
            for row in np.flatnonzero(np.asarray(folders.is_valid()) & ~unknown & ~judge.refused):
                judge.refuse_row(row, DeadLetterReason.BAD_PARTITION, folders[row].as_py())
        if not unknown.any():
            return made.keys
        return pc.if_else(pa.array(unknown), pa.scalar(None, pa.string()), made.keys)

    def _judge_required(self, judge: Judge, decoded: DecodedRecords) -> None:
        """Refuses upserts with nulls in columns that must not be null. A delete needs only its key."""
        for field in self._rules.schema.arrow:
            column = decoded.rows.column(field.name)
            if field.nullable or not column.null_count:
                continue
            missing = np.asarray(column.is_null()) & ~decoded.deletes
            judge.refuse(
                missing, DeadLetterReason.MISTYPED_FIELD, f"field {field.name} must not be null or missing"
            )


def _without_ordering(field: OrderingField) -> str:
    return f"ordering field {field.name} is null or missing"


def _no_shards(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int32))
