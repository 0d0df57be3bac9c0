"""`tidemark table adopt --new-ledger`: the topics were lost, the table was not; start from its timeline.

The new topics begin with a fold that says what the newest commit says: its epoch, and the input positions
of `tidemark.source_offsets`. From there the input is read again. That is *at least once*: events that were
committed after those positions are applied a second time (upserts with an ordering field do not change by
it), and tombstones are gone, so an event older than a delete may bring a row back.

Generations start at the clock's seconds: caches may hold values "exact as of generation n" of the old
ledger, and no generation of the new one may be taken for one of those.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from commit_coordinator.decisions_log import DecisionsLog
from commit_coordinator.errors import CoordinatorError
from commit_coordinator.input_starts import INPUT_STARTS
from commit_coordinator.staging import ROOT, end_older_terms, load_document, remove_ended, store_document
from commit_coordinator.table_state import load_timelines
from commit_coordinator.takeover import EPOCH_KEY, newest_epoch, take_over
from commit_coordinator.topics_setup import LANE_SOURCE, RECORD, ensure_topics
from epoch_protocol.entries import SnapshotTaken
from epoch_protocol.fold import Fold
from epoch_protocol.lanes import shuffle_lane
from epoch_protocol.seen import SeenInstants
from epoch_protocol.state import Committed, FoldState, LaneState, Rewind
from hudi_format.commit import heartbeat
from hudi_format.commit.instants import instant_path
from hudi_format.commit.lock import LOCK_PATH, TableLock, read_lock
from hudi_format.commit.rollback import rollback_pending
from hudi_format.errors import LockHeldError
from hudi_format.model import InstantGenerator
from hudi_format.storage.base import Storage, join_path
from hudi_format.timeline import Action
from hudi_format.timeline.avro_records import decode_commit_metadata
from hudi_format.timeline.identity import judged_instants
from ledger_client.fold_reader import FoldReader
from stream_runtime.clock import Clock
from stream_runtime.config import InputPartitioning, TableConfigFile
from stream_runtime.errors import ErrorKind
from stream_runtime.ids import IdSource
from stream_runtime.kafka.ports import Admin, Isolation, KafkaClient, TopicPartition
from stream_runtime.kafka.topics import TopicNames

_LOCK_WAIT_MS: Final = 5_000
_SOURCES_KEY: Final = "tidemark.source_offsets"


class PendingWriteError(CoordinatorError):
    """A write of a live writer is pending on the timeline."""

    kind = ErrorKind.CONFLICT


@dataclass(frozen=True)
class NewLedger:
    """Where the new ledger starts. ``positions`` per input lane; ``anew``: lanes that begin at input.start,
    because the topic does not hold their position any more; ``rolled_back``: instants of dead writers.
    """

    epoch: int
    instant: str | None
    positions: dict[str, int]
    anew: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)


def new_ledger(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, ids: IdSource
) -> NewLedger:
    """Ends all terms, deletes Tidemark's own topics (dead letters stay), begins a ledger. Repeatable.

    No service of the table may run. Raises LockHeldError, PendingWriteError, KafkaError.
    """
    _refuse_live_writers(storage, clock)
    end_older_terms(storage, sys.maxsize)
    remove_ended(storage, sys.maxsize)
    _free_own_lock(storage)
    topics, admin = TopicNames(config.table.name), kafka.admin()
    try:
        admin.delete_topics(
            [topics.keyed, topics.data, topics.index, topics.tombstones, topics.ledger, topics.epochs]
        )
        storage.delete(RECORD)
        storage.delete(LANE_SOURCE)
        storage.delete(INPUT_STARTS)
        ensure_topics(config, admin)
        reader = FoldReader(
            kafka, topics.ledger, topics.epochs, lambda path, sha: load_document(storage, path, sha), clock
        )
        log = DecisionsLog(
            kafka, topics.epochs, f"{config.table.name}-coordinator", reader, clock, lambda _: None
        )
        try:
            folder = take_over(storage, log, lambda: reader.fold, f"new-ledger-{ids.uuid()}")
            lock = TableLock(storage, clock, ids, term=log.term, term_dir=folder)
            lock.acquire(_LOCK_WAIT_MS)
            try:
                rolled_back = _roll_back_dead(storage, clock)
                begun, state = _first_state(config, storage, admin, clock, log.term)
                path, sha256 = store_document(storage, Fold(state).snapshot())
                log.append(SnapshotTaken(log.term, path, sha256, 0))
            finally:
                lock.release()
            # What comes before the snapshot would be folded from nothing: readers start at it.
            admin.delete_records({topics.epochs_partition: reader.fold.state.decisions_next - 1})
        finally:
            log.close()
            reader.close()
    finally:
        admin.close()
    begun.rolled_back.extend(rolled_back)
    return begun


def _refuse_live_writers(storage: Storage, clock: Clock) -> None:
    for instant in load_timelines(storage).data.pending(Action.COMMIT, Action.DELTA_COMMIT):
        if heartbeat.is_alive(storage, instant.requested, clock.now_ms()):
            raise PendingWriteError(
                f"write {instant.requested} is pending and its writer's heartbeat is fresh: let that writer "
                "finish; if it is dead, try again in two minutes"
            )


def _free_own_lock(storage: Storage) -> None:
    """All terms were ended: nobody of ours can still act under the lock."""
    holder = read_lock(storage)
    if holder is None:
        return
    if holder.is_foreign:
        raise LockHeldError(
            f"{join_path(storage.base_uri, LOCK_PATH)} is held by another writer: let it finish; "
            "if it is dead, delete it"
        )
    # In one step: an empty directory left behind would look like another writer's lock.
    storage.rename(LOCK_PATH, freed := join_path(ROOT, "freed-lock"))
    storage.delete_tree(freed)


def _roll_back_dead(storage: Storage, clock: Clock) -> list[str]:
    generator, rolled_back = InstantGenerator(clock), []
    for instant in load_timelines(storage).data.pending(Action.COMMIT, Action.DELTA_COMMIT):
        rollback_pending(storage, instant.requested, generator)
        rolled_back.append(instant.requested)
    return rolled_back


def _first_state(
    config: TableConfigFile, storage: Storage, admin: Admin, clock: Clock, term: int
) -> tuple[NewLedger, FoldState]:
    timelines = load_timelines(storage)
    newest = newest_epoch(storage, timelines)
    generation = clock.now_ms() // 1_000
    seen = SeenInstants(start=timelines.data.first_active or "")
    seen.add(judged_instants(timelines.data))
    state = FoldState(
        coordinator_term=term,
        handled=timelines.latest_completion(),
        seen=seen,
        # What caches reflect of the old ledger's table, nobody can tell.
        stamps_from=generation,
        rewinds=[Rewind(generation, -1)],
    )
    if newest is None:
        return NewLedger(0, None, {}), state
    epoch, instant = newest
    found = timelines.data.find(instant)
    assert found is not None
    extra = decode_commit_metadata(storage.read(instant_path(found))).extra_metadata
    assert extra[EPOCH_KEY] == str(epoch)
    positions, anew = _positions(config, admin, extra)
    lanes = {lane: LaneState(next=position) for lane, position in positions.items()}
    if config.input.partitioning is InputPartitioning.SHARD:
        state.assign_lanes = lanes
        state.committed = Committed(epoch, -1, instant, found.completion, keyed_next=positions)
    else:
        state.shuffle_lanes = lanes
        state.committed = Committed(epoch, -1, instant, found.completion, source_next=positions)
    return NewLedger(epoch, instant, positions, anew), state


def _positions(
    config: TableConfigFile, admin: Admin, extra: Mapping[str, str]
) -> tuple[dict[str, int], list[str]]:
    """Positions that the input topics still hold, and the lanes whose position they do not."""
    sharded = config.input.partitioning is InputPartitioning.SHARD
    positions: dict[str, int] = {}
    anew: list[str] = []
    for topic, partitions in json.loads(extra.get(_SOURCES_KEY, "{}")).items():
        if topic not in config.input.topics:
            continue
        for partition, (_, position) in partitions.items():
            at = TopicPartition(topic, int(partition))
            lane = partition if sharded else shuffle_lane(*at)
            if _holds(admin, at, position):
                positions[lane] = position
            else:
                anew.append(lane)
    return positions, anew


def _holds(admin: Admin, at: TopicPartition, position: int) -> bool:
    if at.partition >= (admin.partitions(at.topic) or 0):
        return False
    return admin.start_offset(at) <= position <= admin.end_offset(at, Isolation.READ_COMMITTED)
