"""What a stage is built from, known once the process has joined the coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemark.commit.v1 import commit_pb2_grpc
from tidemark.config import TableConfigFile
from tidemark.hudi_format.ordering import OrderingField, table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.index_assigner.adapters import LookupGate
from tidemark.index_assigner.awaited_index import AwaitedIndex
from tidemark.index_assigner.input.careful_frames import CarefulSettings, Setup
from tidemark.index_assigner.input.careful_lanes import CarefulLanes, ChildReader
from tidemark.index_assigner.input.deleted_input import read_by
from tidemark.index_assigner.input.positions import start_of
from tidemark.index_assigner.input.same_topics import stale_by_record
from tidemark.index_assigner.shuffle.configured_keyer import configured_keyer
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.keyed_source import KeyedSource
from tidemark.index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.slots.membership import JoinFacts
from tidemark.index_assigner.slots.observer import AssignerObserver
from tidemark.index_assigner.slots.stage_work import StageWork
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import POLL_BYTES_MAX, KafkaClient


@dataclass(frozen=True)
class StageContext:
    """Configuration, table, ports and the coordinator's answer, for one stage. Read-only.

    ``schema``: the configured one (`table.schema`). ``folds``: has read ledger and decisions to their ends;
    belongs to this stage alone. ``awaited_index``: is shared by the stages of the process.
    ``stop``: is set when the process is told to end.
    """

    config: TableConfigFile
    topics: TopicNames
    client: KafkaClient
    storage: LocalStorage
    table: TableConfig
    schema: TableSchema
    facts: JoinFacts
    folds: FoldReader
    coordinator: commit_pb2_grpc.CommitCoordinatorStub
    lookups: LookupGate
    clock: Clock
    ids: IdSource
    process_id: str
    observer: AssignerObserver
    careful_settings: CarefulSettings | None = None
    awaited_index: AwaitedIndex = field(default_factory=AwaitedIndex)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def ordering(self) -> OrderingField | None:
        """The table's ordering field; None: the event that arrived last wins."""
        return table_ordering(self.table, self.schema)[1]

    def keyer(self) -> RecordKeyer:
        """Makes the keyer that turns input records into keyed rows, from table and configuration."""
        facts = self.facts
        return configured_keyer(
            self.config, self.storage, self.table, self.schema, facts.num_shards, facts.lanes, self.clock
        )

    def careful(self) -> CarefulLanes | None:
        """Makes the reader of suspect lanes; None in tests without a real broker."""
        if self.careful_settings is None:
            return None
        facts = self.facts
        setup = Setup(self.careful_settings, str(self.config.file), facts.num_shards, facts.lanes, 0)
        # The range in which the deadly record may be. Behind the position that it last committed, the reader
        # that died may have fetched: its client's queue, one transaction, and the input for the next one.
        return ChildReader(setup, POLL_BYTES_MAX + 2 * self.config.limits.transaction_bytes, self.clock)

    def keyed_source(self) -> KeyedSource:
        """Makes the assign stage's source of rows: the keyed topic, or the input if partitioned by shard."""
        config = self.config
        if config.input.is_sharded:
            return ShardedInputSource(
                self.client,
                config.input.topics[0],
                self.keyer(),
                start_of(config.input.start, self.storage),
                self.topics.dead_letter,
                config.limits.record_bytes,
                self.clock,
                stale_by_record(self.storage),
                self.careful(),
                read_by(self.folds, self.client, self.topics.ledger_partition),
            )
        return KeyedTopicSource(
            self.client,
            self.topics.keyed,
            self.folds,
            self.topics.ledger_partition,
            read_ahead_bytes=2 * config.limits.transaction_bytes,
            batch_bytes=config.limits.batch_bytes,
        )


StageFactory: TypeAlias = Callable[[StageContext], StageWork]
