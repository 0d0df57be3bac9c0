"""Decodes Kafka keys to record keys: Avro in Confluent's wire format; else text, or JSON of
the key fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.key_text import keys_from_text
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator, KeyOrWhyNot, KeyProblem
from tidemark.record_formats.avro_columns import UnresolvedError
from tidemark.record_formats.avro_rows import AvroRows, DatumReader
from tidemark.record_formats.avro_schema import AvroSchemaError, read_avro_schema
from tidemark.record_formats.decoder import RowTarget, key_columns
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.record_formats.schema_cache import SchemaCache, Unusable
from tidemark.record_formats.wire_format import NOT_FRAMED, schema_ids
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.schema_registry.ports import AVRO, SchemaSource, StoredSchema


@dataclass(frozen=True)
class _KeySchema:
    """How keys of one schema are read. ``rows`` None: the key is no record, but the value of the one key
    field.
    """

    datums: DatumReader
    rows: AvroRows | None


class AvroKeys:
    """Decodes the Kafka keys of one table. ``target``: its columns, of which those of the record key are
    used.
    """

    def __init__(
        self, generator: KeyGenerator, target: RowTarget, source: SchemaSource, clock: Clock
    ) -> None:
        self._generator = generator
        self._target = RowTarget(key_columns(generator, target.columns), None, UnknownFields.IGNORE)
        self._schemas: SchemaCache[_KeySchema] = SchemaCache(
            source, self._build, clock, lambda made: made.datums.schema_parts
        )

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        """For each Kafka key its record key, or the reason why it has none. Raises InputWaitsError while the
        registry has no final answer about a schema.
        """
        ids = schema_ids([key or b"" for key in keys])
        framed = ids != NOT_FRAMED
        if not framed.any():
            return keys_from_text(keys, self._generator)
        schemas = self._schemas.resolve(ids, np.arange(len(keys)))
        made = keys_from_text(
            [None if is_framed else key for key, is_framed in zip(keys, framed, strict=True)], self._generator
        )
        rows = made.rows()
        for schema_id, schema in schemas.items():
            at = np.flatnonzero(ids == schema_id).tolist()
            given = [keys[i] or b"" for i in at]
            parts = [slice(None)] if isinstance(schema, Unusable) else schema.datums.parts(given)
            for part in parts:
                for i, result in zip(at[part], self._of_schema(schema, given[part]), strict=True):
                    rows[i] = result
        return KeyColumns.of_rows(rows)

    def _of_schema(self, schema: _KeySchema | Unusable, keys: Sequence[bytes]) -> list[KeyOrWhyNot]:
        """Returns the key, or why there is none, for each of the keys; all of them have this schema."""
        if isinstance(schema, Unusable):
            return [_unreadable(schema.detail)] * len(keys)
        results: list[KeyOrWhyNot] = [(None, None, None)] * len(keys)
        values, kept, refused = schema.datums.read(keys, range(len(keys)))
        if schema.rows is None:
            made = self._generator.checked_keys(pa.array([str(value) for value in values], pa.string()))
            positions = np.asarray(kept, np.int64)
        else:
            decoded = schema.rows.rows(values, kept)
            refused = refused + decoded.refused
            made = self._generator.record_keys(pa.Table.from_batches([decoded.rows]))
            positions = decoded.positions
        for at, row in zip(positions, made.rows(), strict=True):
            results[at] = row
        for refusal in refused:
            results[refusal.position] = _unreadable(refusal.detail)
        return results

    def _build(self, schema_id: int, stored: StoredSchema) -> _KeySchema | Unusable:
        if stored.kind != AVRO:
            return Unusable(DeadLetterReason.BAD_KEY, f"schema {schema_id} is {stored.kind}, not AVRO")
        try:
            avro = read_avro_schema(stored.text, stored.references)
            datums = DatumReader(schema_id, avro)
            if avro.kind == "record":
                return _KeySchema(datums, AvroRows(avro, self._target, {}))
            # Booleans and bytes are refused: str() would write them as Python does, and not as Hudi does.
            if avro.kind not in ("string", "int", "long") or len(self._generator.record_key_fields) > 1:
                return Unusable(
                    DeadLetterReason.BAD_KEY, f"schema {schema_id} is {avro.shown}, not a record key"
                )
            return _KeySchema(datums, None)
        except (AvroSchemaError, UnresolvedError) as error:
            return Unusable(DeadLetterReason.BAD_KEY, f"schema {schema_id}: {error}")


def _unreadable(detail: str) -> KeyOrWhyNot:
    return None, f"the Kafka key: {detail}", KeyProblem.UNREADABLE
