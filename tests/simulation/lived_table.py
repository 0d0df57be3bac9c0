"""A table that lives with all table services: an epoch a second by the clock of the simulation, all kinds by
their configuration.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from random import Random
from typing import Any, Final

from testing.ids import SeededIds
from tests.simulation.scripted_tagger import SCHEMA, Row
from tests.simulation.service_path import ServicePath, Work
from tests.soak.table_gauge import table_figures
from tidemark.commit_coordinator.calls.placement import Placement, load_listed
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.coordinator import Coordinator
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.commit_coordinator.table_services.cleans import CleanData, CleanIndex
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import ServiceHandler
from tidemark.commit_coordinator.table_services.pressure import ServicePressure
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.metadata_table.partitions.column_stats import file_records
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.port import ServiceFiles
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import MergeMode, TableType
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.data_group import RowRules, merge_data_group
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import (
    decode_plan,
    encode_outcomes,
    output_name,
    output_path,
)

_MEMORY: Final = 64 << 20
_ROUND_S: Final = 0.1


class _AtOnce(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class _Follow:
    """Tells the placement of commits, as `listeners` does."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """Nothing to do."""

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        if report is not None:
            assert planned.instant is not None
            self._placement.committed(report, instant_to_ms(planned.instant))

    def rewinding(self) -> None:
        self._placement.suspend()


def merge(
    document: bytes, files: ServiceFiles, schema: TableSchema = SCHEMA
) -> tuple[bytes, tuple[Ticket, ...]]:
    """The tasks of a compaction, of a table whose rows have that schema."""
    plan, outcomes = decode_plan(document, "plan"), []
    columns = () if plan.stats is None else plan.stats.columns
    rules = RowRules(schema, MergeMode.EVENT_TIME_ORDERING, OrderingField.of(schema, "ts"), columns)
    folder = METADATA_TABLE_PATH if plan.is_index else ""
    for number, operation in plan.kept():
        sink, name = files.grow(output_path(plan, number, folder)), output_name(plan, number)
        try:
            with tempfile.TemporaryDirectory() as scratch:
                bounds = MergeBounds(_MEMORY, Path(scratch))
                if plan.is_index:
                    counts = merge_index_shard(files.storage, operation, plan.instant, sink, bounds)
                else:
                    counts = merge_data_group(files.storage, operation, rules, name, sink, bounds)
            ticket = sink.finish()
        finally:
            sink.discard()
        stats = file_records(operation.partition, name, counts.ranges)
        outcomes.append(counts.outcome(number, name, ticket, stats))
    return encode_outcomes(tuple(outcomes)), tuple(each.ticket for each in outcomes if each.ticket)


class LivedTable(ServicePath):
    """`keys` keys in `groups` file groups; each epoch writes a row or a delete to every file group.

    `model`: key -> row, `places`: key -> number of its file group, both of what is committed. `task_s`: the
    seconds that a worker needs for each operation. `partition_shards`: as in `CommitPath`.
    """

    def __init__(
        self,
        folder: Path,
        config: TableServicesConfig,
        groups: int,
        keys: int,
        seed: int,
        task_s: float = 0.0,
        table_type: TableType = TableType.MERGE_ON_READ,
        schema: TableSchema = SCHEMA,
        partition_shards: int = 0,
    ) -> None:
        self.placement = Placement(1 << 20, SeededIds(seed))
        self.services_config, self._task_s = config, task_s
        work: Mapping[ServiceKind, Work] = {
            ServiceKind.COMPACT_DATA: self._merge,
            ServiceKind.COMPACT_INDEX: merge,
        }
        super().__init__(
            folder,
            lambda _: self._handlers(),
            work,
            seed=seed,
            table_type=table_type,
            schema=schema,
            partition_shards=partition_shards,
        )
        self.draw = Random(seed)
        self.group_ids = [f"00000000-0000-4000-8000-{number:012d}-0" for number in range(groups)]
        self.keys = [f"k{number}" for number in range(keys)]
        self.model: dict[str, Row] = {}
        self.places: dict[str, int] = {}
        self.epochs = self.rests = 0
        self._busy_until_ms = 0

    def _handlers(self) -> Sequence[ServiceHandler]:
        config = self.services_config
        return [
            RollBackDead(config.rollback),
            CompactData(config.compact_data, self.placement),
            CompactIndex(config.compact_index, self.placement),
            CleanData(config, self.placement),
            CleanIndex(config),
            Archive(config.archive, _AtOnce()),
        ]

    def _merge(self, document: bytes, files: ServiceFiles) -> tuple[bytes, tuple[Ticket, ...]]:
        self._busy_until_ms = self.clock.now_ms() + round(
            1_000 * self._task_s * len(decode_plan(document, "plan").operations)
        )
        return merge(document, files, self.schema)

    def start_coordinator(self) -> Coordinator:
        found = super().start_coordinator()
        found._listeners = (_Follow(self.placement),)
        self._list_files()
        found.services._pressure = ServicePressure(
            self.services_config, self.placement, 1_000, self.handoff.progress_of
        )
        return found

    def _list_files(self) -> None:
        """As the product's loop: at the start, and after each rewind. Until then no compaction is due."""
        load_listed(self.storage, None, self.placement)
        self._listed_generation = self._generation()

    def _generation(self) -> int:
        assert self.context is not None
        return self.context.fold().state.generation

    def second(self) -> None:
        """Tags an epoch unless assigners rest, and lets a second pass; what is tagged is committed."""
        end_ms = self.clock.now_ms() + 1_000
        services = (self.coordinator or self.start_coordinator()).services
        if services.tagging_rests(self.clock.now_ms()):
            self.rests += 1
        elif self._is_committed():
            self._tag_epoch()
        while self.clock.now_ms() < end_ms:
            self.step_coordinator()
            self.write_open_attempt()
            if self.clock.now_ms() >= self._busy_until_ms:
                self.work_on_services()

    def step_coordinator(self) -> None:
        """One round of the loop. Time passes in it, as in one that waits for entries."""
        coordinator = self.coordinator or self.start_coordinator()
        coordinator.step(0.0)
        is_rewound = self._generation() != self._listed_generation
        if is_rewound or coordinator.services.wants_listing(self.clock.now_ms()):
            self._list_files()
        self.clock.advance(_ROUND_S)

    def settle(self) -> None:
        """Lets seconds pass until everything that is tagged is committed. A stream that halts fails."""
        while not self._is_committed():
            self.step_coordinator()
            assert self.coordinator is None or self.coordinator.seen.halted is None, self.coordinator.seen
            self.write_open_attempt()

    def _is_committed(self) -> bool:
        state = self.state() if self.context is None else self.context.fold().state
        return state.planned is None and not state.tagged

    def _tag_epoch(self) -> None:
        """One key of each file group, as far as it has any: an update, or a delete. New keys go anywhere."""
        self.epochs += 1
        rows: list[tuple[Row, DataOp, str]] = []
        keys = self.draw.sample(self.keys, len(self.keys))
        for number, group in enumerate(self.group_ids):
            key = next(key for key in keys if self.places.get(key, number) == number)
            keys.remove(key)
            row = self.new_row(key, number)
            is_there = key in self.model
            if is_there and self.draw.random() < 0.2:
                del self.model[key], self.places[key]
                rows.append((row, DataOp.DELETE, group))
            else:
                self.model[key], self.places[key] = row, number
                rows.append((row, DataOp.UPDATE if is_there else DataOp.INSERT, group))
        self.tag(rows)

    def new_row(self, key: str, group: int) -> Row:
        """A row of this epoch for a key in the file group of that number."""
        return {"id": key, "day": f"d{group % 3}", "ts": self.epochs, "v": self.draw.randrange(1_000)}

    def stats(self) -> dict[str, float]:
        """The table's own stats, without the copies of decisions that trimming would delete."""
        folder = Path(self.storage.base_uri.removeprefix("file://"))
        found = table_figures(folder)
        found["files: table"] -= sum(1 for _ in (folder / ".hoodie/.aux/tidemark/store").iterdir())
        del found["disk: table"]
        return found
