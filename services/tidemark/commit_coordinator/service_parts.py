"""Small functions for a coordinator's start: they make what services need from configuration and table."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service import Facts
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.listed_slices import index_figures
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.dead_letters.newest import newest_letters
from tidemark.commit_coordinator.domain.next_action import Limits
from tidemark.commit_coordinator.input.watch import InputView
from tidemark.commit_coordinator.opening.table_open import OpenedTable
from tidemark.config import TableConfigFile
from tidemark.config.model import InputPartitioning
from tidemark.epoch_protocol.entries import PROTOCOL_VERSION, Stage, Topic
from tidemark.epoch_protocol.input_topics import lanes_of
from tidemark.epoch_protocol.lanes import assign_lane
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.hudi_format.errors import LockLostError
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_view import TableView
from tidemark.ledger_client.topics import TopicNames
from tidemark.page.sources import Pictures, RecordsPassed
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Admin, KafkaClient

RETRY_MS: Final = 500
GATHER_MS_MAX: Final = 500
_log: Final = logging.getLogger("tidemark.coordinator")


def stopped_by_topic(
    config: TableConfigFile, view: InputView, taken: Mapping[str, int], now_ms: int
) -> list[StoppedLane]:
    """The lanes of stopped topics. ``taken``: input lane -> next offset that is not in our topics yet."""
    sharded = is_sharded(config)
    stage = Stage.ASSIGN if sharded else Stage.SHUFFLE
    stopped = []
    for name, stop in view.stopped.items():
        for partition, lane in enumerate(lanes_of(name, view.topics[name])):
            of_stage, next_offset = assign_lane(partition) if sharded else lane, taken.get(lane, 0)
            stopped.append(
                StoppedLane(stage, of_stage, name, partition, next_offset, stop.reason, stop.text, now_ms)
            )
    return stopped


def lanes_by_stage(config: TableConfigFile, view: InputView) -> dict[Stage, list[str]]:
    """Stage -> lanes to work on. With `input.partitioning: shard` a stopped topic stops all of them."""
    sharded = is_sharded(config)
    tagging = [] if sharded and view.stopped else range(config.table.index.lanes)
    return {Stage.SHUFFLE: [] if sharded else view.lanes(), Stage.ASSIGN: [assign_lane(n) for n in tagging]}


def facts_of(config: TableConfigFile, table: OpenedTable, ledger: str = "") -> Facts:
    """The facts that joining processes are told."""
    return Facts(
        table=config.table.name,
        num_shards=table.num_shards,
        lanes=config.table.index.lanes,
        lease_ms=config.limits.lease_ms,
        protocol_version=PROTOCOL_VERSION,
        ledger=ledger,
        report_bytes_max=config.limits.rpc_message_bytes,
    )


def free_lock(context: Context) -> None:
    """Releases the lock that a coordinator holds or left, unless an epoch or a service action is decided;
    others need not wait.

    First waits for the clocks' skew, because a coordinator that died may have taken a time a moment ago.
    """
    holder = context.lock.holder()
    state = context.fold().state
    decided = state.decided is not None or any(held.decided for held in state.services.values())
    if holder is None or holder.is_foreign or decided:
        return
    try:
        if context.lock.is_held or context.lock.try_acquire():
            context.lock.release(context.instants.taken_ms or context.clock.now_ms())
        context.lock.free()
    except LockLostError as error:
        _log.warning("%s", error)


def trimmer_of(admin: Admin, topics: TopicNames, *, with_keyed: bool) -> Trimmer:
    """Trims the table's topics. ``with_keyed``: not if the assign stage reads the input itself."""
    roles = {Topic.DATA: topics.data, Topic.INDEX: topics.index, Topic.TOMBSTONES: topics.tombstones}
    if with_keyed:
        roles[Topic.KEYED] = topics.keyed
    return Trimmer(admin, roles, topics.ledger_partition, topics.epochs_partition)


def is_sharded(config: TableConfigFile) -> bool:
    """Whether the assign stage reads the input itself (`input.partitioning: shard`)."""
    return config.input.partitioning is InputPartitioning.SHARD


def planning_limits(config: TableConfigFile) -> Limits:
    """When epochs are planned, and how often one is tried, by the configuration."""
    interval_ms = config.epoch.interval_ms
    return Limits(
        interval_ms,
        config.epoch.max_bytes,
        config.limits.epoch_attempts,
        min(interval_ms, GATHER_MS_MAX),
        retry_ms=RETRY_MS,
    )


def passed_records(view: CoordinatorView) -> RecordsPassed | None:
    """How many records have passed each stage; None before the table is taken over."""
    if view.term < 0:
        return None
    committed = view.committed.input
    return RecordsPassed(view.shuffled_records, committed + view.uncommitted.input, committed)


def page_pictures(
    table: str, kafka: KafkaClient, clock: Clock, board: ViewBoard, placement: Placement
) -> Pictures:
    """The sources of what the page shows besides the answers of the admin service."""
    dead_letters = partial(newest_letters, kafka, table, clock)
    return Pictures(lambda: passed_records(board.current), placement.slices, dead_letters)


def lease_listed(storage: Storage, logs: ReadableLogs | None, placement: Placement) -> None:
    """Lists the file groups of the table, from which `placement` leases, and of its metadata table.

    Raises UnsupportedTableError when another engine wrote log files that cannot be read.
    """
    snapshot = MetadataTableSnapshot.load(storage)
    view = TableView.of(storage, snapshot.data_timeline)
    if logs is not None:
        logs.check(view.slices(snapshot.files.names()), snapshot.files.files)
    placement.load(snapshot.files, view, index_figures(storage, snapshot))
