"""`input.format: debezium-avro`: change events as Avro, with schemas from a registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyColumns, KeyGenerator
from tidemark.record_formats.avro_columns import UnresolvedError
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_rows import AvroRows, Defaults
from tidemark.record_formats.avro_schema import AvroType
from tidemark.record_formats.change_events import ChangeEffects
from tidemark.record_formats.decode_avro import FramedAvro
from tidemark.record_formats.decoded_memory import MEMORY_MAX
from tidemark.record_formats.decoder import (
    DecodedRecords,
    Int64Array,
    RowTarget,
    joined,
    key_columns,
    key_is_missing,
    nothing_decoded,
    widened,
)
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.record_formats.source_position import EnvelopeOrdering
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.schema_registry.ports import SchemaSource


@dataclass(frozen=True)
class _Images:
    """Readers of the row before an event (only what identifies it; None: the schema has no such field) and
    after it.
    """

    before: AvroRows | None
    after: AvroRows


class DebeziumAvro:
    """The `RecordDecoder` of `debezium-avro`."""

    tombstones_follow_deletes = True

    def __init__(
        self,
        target: RowTarget,
        generator: KeyGenerator,
        defaults: Defaults,
        keys: AvroKeys,
        ordering: EnvelopeOrdering | None,
        source: SchemaSource,
        clock: Clock,
        memory_most: int = MEMORY_MAX,
        deletes_name_partitions: bool = False,
    ) -> None:
        """``memory_most``: limit of the memory that one decoded record takes, in bytes.
        ``deletes_name_partitions``: the partition of a delete is read, too, and not its key alone.
        """
        self._target = target
        self._deletes_name_partitions = deletes_name_partitions
        before = key_columns(generator, target.columns, with_partition=deletes_name_partitions)
        self._key_target = RowTarget(before, None, UnknownFields.IGNORE)
        self._defaults = defaults
        self._keys = keys
        self._ordering = ordering
        self._framed = FramedAvro(self._images, source, clock, target.columns, memory_most)

    def decode(self, messages: Sequence[Message], positions: Int64Array) -> DecodedRecords:
        changes = ChangeEffects(self._ordering, self._deletes_name_partitions)
        parts = []
        for schema, at in self._framed.by_schema(messages, positions, changes.refused):
            events, kept, unreadable = schema.datums.read([messages[i].value or b"" for i in at], at)
            changes.refused += unreadable
            rows: dict[str, tuple[list[Any], list[int]]] = {"before": ([], []), "after": ([], [])}
            for event, position in zip(events, kept, strict=True):
                taken = self._take(changes, event, position)
                if taken is not None:
                    rows[taken][0].append(event[taken])
                    rows[taken][1].append(position)
            images = schema.plan
            if rows["after"][0]:
                parts.append(images.after.rows(*rows["after"]))
            if rows["before"][0] and images.before is not None:
                parts.append(widened(images.before.rows(*rows["before"]), self._target.columns))
        decoded = joined(parts, self._target.columns) if parts else nothing_decoded(self._target.columns, [])
        return changes.finish(decoded)

    def memory(self, values: Sequence[bytes], most: int) -> Int64Array:
        return self._framed.memory(values)

    def record_keys(self, keys: Sequence[bytes | None]) -> KeyColumns:
        return self._keys.record_keys(keys)

    def without_key(self, value: bytes, name: str) -> tuple[DeadLetterReason, str]:
        return key_is_missing(name)

    def _take(self, changes: ChangeEffects, event: Mapping[str, Any], position: int) -> str | None:
        before, after = event.get("before"), event.get("after")
        taken = changes.takes(position, event.get("op"), before is not None, after is not None)
        if self._ordering is not None:
            holder = event.get("source") if self._ordering.position.in_source else event
            block = holder if isinstance(holder, dict) else {}
            changes.stands_at(position, [block.get(name) for name in self._ordering.position.fields])
        return taken

    def _images(self, envelope: AvroType) -> _Images:
        fields = envelope.fields or {}
        after, before = fields.get("after"), fields.get("before")
        if after is None or "op" not in fields:
            raise UnresolvedError(
                "after", f"the writer has {envelope.shown} without op and after, which is no change event"
            )
        return _Images(
            None if before is None else AvroRows(before.not_null, self._key_target, {}),
            AvroRows(after.not_null, self._target, self._defaults),
        )
