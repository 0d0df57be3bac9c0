"""A table that lives with our epochs and table services by the machine's clock, so that Hudi on Spark can
write to it, too, between our epochs and during them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from pathlib import Path

import pyarrow as pa

from tests.simulation.lived_table import LivedTable
from tests.simulation.scripted_tagger import TABLE, Row, Tagged
from tests.simulation.watched_life import SOON
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType


class SharedTable(LivedTable):
    """`odd_groups`: the file groups that Spark does not write to."""

    odd_groups: Set[int] = frozenset()

    def __init__(self, folder: Path, table_type: TableType, groups: int, arrow: pa.Schema, seed: int) -> None:
        self.last: Sequence[Tagged] = ()
        schema = TableSchema.from_arrow(TABLE, arrow)
        super().__init__(
            folder, SOON, groups=groups, keys=40, seed=seed, table_type=table_type, schema=schema
        )
        self.clock.advance(time.time() - 900 - self.clock.now_ms() / 1_000)

    def tag(self, rows: Sequence[Tagged]) -> int:
        self.last = rows
        return super().tag(rows)

    def settle(self) -> None:
        """What was tagged before another writer came is tagged anew."""
        while True:
            self.step_coordinator()
            super().settle()
            state = self.state()
            if state.generation > self.tagger.generation:
                self.tagger.claim_anew(state)
                self.tag(self.last)
            elif state.planned is None and not state.tagged:
                return

    def epochs_of_ours(self, count: int) -> None:
        for _ in range(count):
            self._tag_epoch()
            self.settle()

    def until_done(self, kind: ServiceKind) -> None:
        """An epoch a second, until an action of that kind has ended that begins after now."""
        before = len(self.planned_services())
        for _ in range(90):
            self.second()
            self.settle()
            planned = self.planned_services()
            if any(number >= before and planned[number].kind is kind for number in self.ended()):
                return
        raise AssertionError(f"no action of {kind}")

    def meet_spark(self) -> None:
        """The lock is free, and both clocks show the same."""
        assert self.context is not None
        self.context.lock.free()
        self.meet_clock()

    def meet_clock(self) -> None:
        """This table's clock and the machine's show the same."""
        ahead_s = self.clock.now_ms() / 1_000 - time.time()
        if ahead_s > 0:
            time.sleep(ahead_s)
        else:
            self.clock.advance(-ahead_s)

    def theirs(self, new: Sequence[str]) -> pa.Table:
        """What Spark is about to upsert: rows of keys in file groups of ours, and of new ones."""
        self.epochs += 1
        busy = {str(row["id"]) for row, _, _ in self.last}
        known = [
            key for key, group in self.places.items() if group not in self.odd_groups and key not in busy
        ][:3]
        assert known
        rows = [self.their_row(key, self.places[key]) for key in known]
        rows += [self.their_row(key, 0) for key in new]
        self.model |= {str(row["id"]): row for row in rows}
        return pa.Table.from_pylist(rows, schema=self.schema.arrow)

    def their_row(self, key: str, group: int) -> Row:
        """A row of Spark's for a key in the file group of that number."""
        return self.new_row(key, group)
