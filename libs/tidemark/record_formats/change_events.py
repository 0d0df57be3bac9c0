"""How Debezium's change events change a table, for both encodings (JSON and Avro).

=========== ==============================================================================================
op          effect
=========== ==============================================================================================
c, u, r     ``after`` becomes the key's row
d           the key is deleted, in the partition where the index has it. The key comes from ``before``, of
            which only the key fields are read, or from the Kafka key when there is no ``before``. In a table
            with a partitioned index it is deleted in the partition that ``before`` names
t           (the source table was truncated) refused: the table may have rows of other sources, and nobody
            could undo it. An operator can delete the rows with Hudi on Spark
m           (a logical message of PostgreSQL) counted and ignored
null value  a delete of its Kafka key; it has no effect right behind the ``d`` event of the same key
=========== ==============================================================================================

With `input.debezium.ordering` the ordering value of every event is the source's position. Without it a
``d`` has no ordering value, and deletes everything that came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.record_formats.decoder import DecodedRecords, KeyedDeletes
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.record_formats.source_position import EnvelopeOrdering

UPSERTS: Final = frozenset("cur")
DELETE: Final = "d"
TRUNCATE: Final = "t"
# PostgreSQL's pg_logical_emit_message: an entry in the log that belongs to no table and no row.
MESSAGE: Final = "m"
# Debezium's default placeholder for a value that is not in the source's log (PostgreSQL: large and
# unchanged).
UNAVAILABLE: Final = "__debezium_unavailable_value"


@dataclass
class ChangeEffects:
    """The effects of the events of one batch, collected event by event. Positions are those of the batch."""

    ordering: EnvelopeOrdering | None
    deletes_name_partitions: bool = False
    refused: list[Refusal] = field(default_factory=list)
    passed_over: int = 0
    _deletes: list[int] = field(default_factory=list)
    _by_kafka_key: list[int] = field(default_factory=list)
    _sources: dict[int, Sequence[Any]] = field(default_factory=dict)

    def takes(self, position: int, op: Any, has_before: bool, has_after: bool) -> str | None:
        """Takes note of one event's operation, or refuses it.

        Returns which image has the event's row: "before", "after", or None when no image is to be read.
        """
        if isinstance(op, str) and op in UPSERTS:
            if has_after:
                return "after"
            self.refuse(
                position,
                DeadLetterReason.WRONG_SHAPE,
                f"a change event with op {op} and without a row in after",
            )
        elif op == DELETE:
            if has_before:
                self._deletes.append(position)
                return "before"
            self._by_kafka_key.append(position)
        elif op == MESSAGE:
            self.passed_over += 1
        elif op == TRUNCATE:
            detail = (
                "the source table was truncated, which is not carried out here: delete the rows with Hudi"
            )
            self.refuse(position, DeadLetterReason.TRUNCATE, detail)
        else:
            self.refuse(
                position, DeadLetterReason.UNKNOWN_OPERATION, f"op is {op!r:.40}, not one of c, u, d, r, t, m"
            )
        return None

    def delete_by_kafka_key(self, position: int) -> None:
        """Takes note of an event whose payload is null: a delete of its Kafka key."""
        self._by_kafka_key.append(position)

    def stands_at(self, position: int, values: Sequence[Any]) -> None:
        """Stores the values of the event's ordering fields (`SourcePosition.fields`)."""
        self._sources[position] = values

    def refuse(self, position: int, reason: DeadLetterReason, detail: str) -> None:
        """Refuses the event at this position."""
        self.refused.append(Refusal(position, reason, detail))

    def finish(self, decoded: DecodedRecords) -> DecodedRecords:
        """Adds deletes, ordering values and refusals of the envelopes to the decoded rows of all images."""
        deletes = np.isin(decoded.positions, np.asarray(self._deletes, np.int64))
        rows = decoded.rows
        if self.ordering is not None:
            at = rows.schema.get_field_index(self.ordering.column)
            rows = rows.set_column(at, rows.schema.field(at), self._ordering(decoded.positions.tolist()))
        by_key = np.asarray(sorted(self._by_kafka_key), np.int64)
        ordering = None if self.ordering is None else self._ordering(by_key.tolist())
        changed = replace(
            decoded,
            rows=rows,
            deletes=deletes,
            refused=decoded.refused + self.refused,
            deletes_need_ordering=self.ordering is not None,
            deletes_have_keys_alone=not self.deletes_name_partitions,
            by_kafka_key=KeyedDeletes(by_key, ordering),
            passed_over=self.passed_over,
        )
        return without_unavailable(changed)

    def _ordering(self, positions: Sequence[int]) -> pa.Array:
        assert self.ordering is not None
        missing = [None] * len(self.ordering.position.fields)
        return self.ordering.values([self._sources.get(i, missing) for i in positions])


def without_unavailable(decoded: DecodedRecords) -> DecodedRecords:
    """Refuses rows in which a column has Debezium's placeholder instead of a value that was not logged."""
    bad = np.zeros(decoded.rows.num_rows, np.bool_)
    refused = []
    for field_, column in zip(decoded.rows.schema, decoded.rows.columns, strict=True):
        if not pa.types.is_string(field_.type) and not pa.types.is_binary(field_.type):
            continue
        placeholder = pa.scalar(UNAVAILABLE.encode(), pa.binary()).cast(field_.type)
        held = np.asarray(pc.fill_null(pc.equal(column, placeholder), False)) & ~decoded.deletes & ~bad
        for at in np.flatnonzero(held):
            detail = (
                f"field {field_.name}: the source did not log its value, which did not change: set REPLICA "
                "IDENTITY FULL on the source table"
            )
            refused.append(Refusal(int(decoded.positions[at]), DeadLetterReason.UNAVAILABLE_VALUE, detail))
        bad |= held
    if not refused:
        return decoded
    return replace(
        decoded,
        rows=decoded.rows.filter(pa.array(~bad)),
        positions=decoded.positions[~bad],
        deletes=decoded.deletes[~bad],
        refused=decoded.refused + refused,
    )
