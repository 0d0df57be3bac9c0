"""`input.format: avro`: records in Confluent's wire format, with schemas from a registry.

fastavro reads record by record, since no library reads such Avro by columns. After that all work is on
columns: a plan is made once per schema, and each column of a batch is converted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.keys import KeyColumns
from tidemark.record_formats.avro_columns import UnresolvedError
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_rows import AvroRows, DatumReader, Defaults
from tidemark.record_formats.avro_schema import AvroSchemaError, AvroType, read_avro_schema
from tidemark.record_formats.decoded_memory import MEMORY_MAX, TOGETHER_MAX, ColumnMemory
from tidemark.record_formats.decoder import (
    DecodedRecords,
    Int64Array,
    RowTarget,
    joined,
    key_is_missing,
    nothing_decoded,
)
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.record_formats.schema_cache import SchemaCache, Unusable
from tidemark.record_formats.wire_format import NOT_FRAMED, schema_ids, why_not_framed
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.schema_registry.ports import AVRO, SchemaSource, StoredSchema

Plan = TypeVar("Plan")


@dataclass(frozen=True)
class WriterSchema(Generic[Plan]):
    """A prepared writer's schema: ``datums`` reads its records, ``plan`` turns them into rows."""

    datums: DatumReader
    plan: Plan


class FramedAvro(Generic[Plan]):
    """Groups framed values by schema. ``plan_of`` makes a schema's plan; it may raise UnresolvedError and
    AvroSchemaError, which make the schema unusable.
    """

    def __init__(
        self,
        plan_of: Callable[[AvroType], Plan],
        source: SchemaSource,
        clock: Clock,
        columns: pa.Schema,
        memory_most: int,
    ) -> None:
        self._plan_of = plan_of
        self._memory_most = memory_most
        self._columns = ColumnMemory(columns)
        self._schemas: SchemaCache[WriterSchema[Plan]] = SchemaCache(
            source, self._build, clock, lambda made: made.datums.schema_parts
        )

    def by_schema(
        self, messages: Sequence[Message], positions: Int64Array, refused: list[Refusal]
    ) -> list[tuple[WriterSchema[Plan], list[int]]]:
        """Returns schemas with positions of their records, in parts that fit into memory.

        A schema may come several times, once per part. Records without a usable schema are added to
        ``refused``. Raises InputWaitsError.
        """
        ids = schema_ids([messages[i].value or b"" for i in positions])
        groups = []
        schemas = self._schemas.resolve(ids, positions)
        bare = positions[ids == NOT_FRAMED].tolist()
        refused += [
            Refusal(i, DeadLetterReason.NOT_FRAMED, why_not_framed(messages[i].value or b"")) for i in bare
        ]
        for schema_id, schema in schemas.items():
            at = positions[ids == schema_id].tolist()
            if isinstance(schema, Unusable):
                refused += [Refusal(i, schema.reason, schema.detail) for i in at]
            else:
                values = [messages[i].value or b"" for i in at]
                groups += [(schema, at[part]) for part in schema.datums.parts(values)]
        return groups

    def memory(self, values: Sequence[bytes]) -> Int64Array:
        """The most memory per value, for `RecordDecoder.memory`; never above `TOGETHER_MAX`, because a single
        record is limited while it is read (`DatumReader`).
        """
        return np.minimum(self._columns.of(values), TOGETHER_MAX)

    def _build(self, schema_id: int, stored: StoredSchema) -> WriterSchema[Plan] | Unusable:
        if stored.kind != AVRO:
            detail = f"schema {schema_id} is {stored.kind}, input.format wants AVRO"
            return Unusable(DeadLetterReason.INCOMPATIBLE_SCHEMA, detail)
        try:
            avro = read_avro_schema(stored.text, stored.references)
            datums = DatumReader(schema_id, avro, self._columns.item, self._memory_most)
            return WriterSchema(datums, self._plan_of(avro))
        except UnresolvedError as error:
            return Unusable(error.reason, f"schema {schema_id}: {error}")
        except AvroSchemaError as error:
            return Unusable(DeadLetterReason.INCOMPATIBLE_SCHEMA, f"schema {schema_id}: {error}")


class AvroDecoder:
    """The `RecordDecoder` of `avro`."""

    tombstones_follow_deletes = False

    def __init__(
        self,
        target: RowTarget,
        defaults: Defaults,
        keys: AvroKeys,
        source: SchemaSource,
        clock: Clock,
        memory_most: int = MEMORY_MAX,
    ) -> None:
        """``memory_most``: limit of the memory that one decoded record takes, in bytes."""
        self._target = target
        self._keys = keys
        self._framed = FramedAvro(
            lambda avro: AvroRows(avro, target, defaults), source, clock, target.columns, memory_most
        )

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        refused: list[Refusal] = []
        parts = []
        for schema, at in self._framed.by_schema(messages, positions, refused):
            records, kept, unreadable = schema.datums.read([messages[i].value or b"" for i in at], at)
            refused += unreadable
            parts.append(schema.plan.rows(records, kept))
        if not parts:
            return nothing_decoded(self._target.columns, refused)
        decoded = joined(parts, self._target.columns)
        return replace(decoded, refused=refused + decoded.refused)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        return self._framed.memory(values)

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        return self._keys.record_keys(keys)

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        return key_is_missing(name)
