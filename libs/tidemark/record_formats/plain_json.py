"""`input.format: json`: one JSON object per record, plain or in Confluent's wire format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tidemark.hudi_format.key_text import keys_from_text
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import DecodedRecords, Int64Array
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.record_formats.schema_cache import SchemaCache, Unusable
from tidemark.record_formats.wire_format import HEADER_BYTES, NOT_FRAMED, schema_ids, why_not_framed
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.schema_registry.ports import JSON, SchemaSource, StoredSchema


class FramedJson:
    """Removes the wire format's header. With a registry the id has to be that of a JSON schema. The schema
    itself is not used, because a JSON value contains its types.
    """

    def __init__(self, source: SchemaSource | None, clock: Clock) -> None:
        self._schemas: SchemaCache[None] | None = None
        if source is not None:
            self._schemas = SchemaCache(source, _check_kind, clock)

    def contents(
        self, messages: Sequence[Message], positions: Int64Array, refused: list[Refusal]
    ) -> tuple[list[memoryview], Int64Array]:
        """Returns the values without their headers, and their positions; adds the others to ``refused``.

        Raises InputWaitsError.
        """
        ids = schema_ids([messages[i].value or b"" for i in positions])
        framed = ids != NOT_FRAMED
        for i in positions[~framed].tolist():
            refused.append(Refusal(i, DeadLetterReason.NOT_FRAMED, why_not_framed(messages[i].value or b"")))
        sound = framed.copy()
        if self._schemas is not None:
            for schema_id, schema in self._schemas.resolve(ids, positions).items():
                if isinstance(schema, Unusable):
                    of_schema = ids == schema_id
                    sound &= ~of_schema
                    refused += [
                        Refusal(i, schema.reason, schema.detail) for i in positions[of_schema].tolist()
                    ]
        kept = positions[sound]
        return [memoryview(messages[i].value or b"")[HEADER_BYTES:] for i in kept], kept


def bare(values: Sequence[bytes], framed: FramedJson | None) -> Sequence[bytes]:
    """The JSON documents in the values, without headers: a header's bytes may look like a quote or a brace,
    which the estimate of memory counts.
    """
    return values if framed is None else [value[HEADER_BYTES:] for value in values]


class PlainJson:
    """The `RecordDecoder` of `json`."""

    tombstones_follow_deletes = False

    def __init__(
        self, decoder: JsonDecoder, generator: KeyGenerator, framed: FramedJson | None = None
    ) -> None:
        self._decoder = decoder
        self._generator = generator
        self._framed = framed

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        if self._framed is None:
            return self._decoder.decode([messages[i].value or b"" for i in positions], positions)
        refused: list[Refusal] = []
        contents, kept = self._framed.contents(messages, positions, refused)
        decoded = self._decoder.decode(contents, kept)
        return replace(decoded, refused=refused + decoded.refused)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        return self._decoder.memory(bare(values, self._framed), most)

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        return keys_from_text(keys, self._generator)

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        """Tells whether the field is missing or null."""
        content = value[HEADER_BYTES:] if self._framed is not None else value
        try:
            # The fields' values are not parsed: a field that is not read need not be valid.
            document = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = {}
        if name.split(".")[0] in document:
            return DeadLetterReason.NULL_KEY, f"record key field {name} is null"
        return DeadLetterReason.MISSING_KEY, f"record key field {name} is missing"


def _check_kind(schema_id: int, stored: StoredSchema) -> Unusable | None:
    if stored.kind == JSON:
        return None
    detail = f"schema {schema_id} is {stored.kind}, input.format wants JSON"
    return Unusable(DeadLetterReason.INCOMPATIBLE_SCHEMA, detail)
