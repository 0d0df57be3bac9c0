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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.commit_coordinator.commit.agreement import EPOCH_KEY, newest_epoch
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import load_document, store_document
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.offline.new_ledger_inputs import (
    inputs_of_new_ledger,
    positions_held,
    record_starts,
)
from tidemark.commit_coordinator.opening.ledger_identity import MovedOrCopiedError, is_same_place, location_of
from tidemark.commit_coordinator.opening.ledger_record import read_ledger_record
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.commit_coordinator.opening.topics_setup import (
    LANE_SOURCE,
    RECORD,
    OpenedInputs,
    ensure_topics,
)
from tidemark.config import InputPartitioning, TableConfigFile
from tidemark.epoch_protocol.entries import SnapshotTaken
from tidemark.epoch_protocol.errors import ProtocolError
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
    InputTopic,
    InputTopics,
    encode_input_topics,
)
from tidemark.epoch_protocol.seen import SeenInstants
from tidemark.epoch_protocol.state import Committed, FoldState, LaneState, Rewind
from tidemark.epoch_protocol.tombstones import CommittedTombstones
from tidemark.errors import ErrorKind
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.port import Publication, Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.timeline.identity import judged_instants
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.served_by import moved_or_copied_text
from tidemark.ledger_client.table_id import TABLE_ID
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import Admin, KafkaClient, OffsetOutOfRangeError

_LOCK_WAIT_MS: Final = 5_000
_SOURCES_KEY: Final = "tidemark.source_offsets"


class PendingWriteError(CoordinatorError):
    """A write of a live writer is pending on the timeline."""

    kind = ErrorKind.CONFLICT


@dataclass(frozen=True)
class NewLedger:
    """Where the new ledger starts. ``positions`` per input lane; ``anew``: lanes whose position the topic
    does not hold any more, read from where they first began, or, where that is gone, from the topic's start;
    ``rolled_back``: instants of dead writers.
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

    No service of the table may run. Raises LockHeldError, PendingWriteError, MovedOrCopiedError when the
    topics are those of a table elsewhere, TopicsChangedError for a misspelt input topic, KafkaError; all of
    them before anything is deleted.
    """
    topics, admin = TopicNames(config.table.name), kafka.admin()
    publication = open_publication(storage, clock, ids)
    try:
        inputs, other_topics = _checked_inputs(config, kafka, publication, clock, admin)
        publication.end_all_terms()
        # From here on neither topics nor caches of the former ledger are taken for this table's.
        ledger = ids.uuid()
        storage.replace(TABLE_ID, ledger.encode())
        admin.delete_topics(
            [topics.keyed, topics.data, topics.index, topics.tombstones, topics.ledger, topics.epochs]
        )
        storage.delete(RECORD)
        storage.delete(LANE_SOURCE)
        ensure_topics(config, admin)
        reader = _reader(config, kafka, storage, clock)
        log = DecisionsLog(
            kafka, topics.epochs, f"{config.table.name}-coordinator", reader, clock, lambda _: None
        )
        try:
            term = take_over(publication, log, lambda: reader.fold, f"new-ledger-{ids.uuid()}", ledger)
            lock = term.lock
            instants = InstantGenerator(clock)
            lock.acquire(_LOCK_WAIT_MS)
            try:
                rolled_back = _roll_back_dead(term, instants)
                begun, state = _first_state(
                    config, storage, admin, clock, log.term, inputs.topics, other_topics
                )
                state.ledger, state.location = ledger, location_of(storage)
                record_starts(config, storage, admin, inputs, begun.positions)
                storage.replace(INPUT_TOPICS_PATH, encode_input_topics(InputTopics(inputs.topics)))
                path, sha256 = store_document(storage, Fold(state).snapshot())
                log.append(SnapshotTaken(log.term, path, sha256, 0))
            finally:
                lock.release(instants.taken_ms)
                lock.free()
            # What comes before the snapshot would be folded from nothing: readers start at it.
            admin.delete_records({topics.epochs_partition: reader.fold.state.decisions_next - 1})
        finally:
            log.close()
            reader.close()
    finally:
        admin.close()
    begun.rolled_back.extend(rolled_back)
    return begun


def check_new_ledger(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, ids: IdSource
) -> None:
    """Raises what `new_ledger` raises before it deletes anything. Changes nothing."""
    admin = kafka.admin()
    try:
        _checked_inputs(config, kafka, open_publication(storage, clock, ids), clock, admin)
    finally:
        admin.close()


def _checked_inputs(
    config: TableConfigFile, kafka: KafkaClient, publication: Publication, clock: Clock, admin: Admin
) -> tuple[OpenedInputs, frozenset[str]]:
    _refuse_live_writers(publication, clock)
    check_replaceable(config, kafka, publication.storage, clock)
    return inputs_of_new_ledger(config, publication.storage, admin)


def check_replaceable(config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock) -> None:
    """Raises MovedOrCopiedError when the topics of that name are the ledger of a table elsewhere: to delete
    them would end the production of that table. Topics that cannot be read say nothing: they are why this is
    done.
    """
    former = former_state(config, kafka, storage, clock)
    if former is None or former.location is None:
        return
    here = location_of(storage)
    if not is_same_place(former.location, here):
        raise MovedOrCopiedError(moved_or_copied_text(config.table.name, former.location.path, here.path))


def former_state(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock
) -> FoldState | None:
    """What the topics say as they are; None when they are not there, or cannot be read. Raises KafkaError."""
    names, admin = TopicNames(config.table.name), kafka.admin()
    try:
        if any(admin.partitions(name) is None for name in (names.ledger, names.epochs)):
            return None
    finally:
        admin.close()
    reader = _reader(config, kafka, storage, clock)
    try:
        reader.catch_up()
    except (ProtocolError, HudiFormatError, DeadlineExceededError, OffsetOutOfRangeError):
        # The claims that were read say where the table lies, also when what follows them is damaged.
        return reader.fold.state
    finally:
        reader.close()
    return reader.fold.state


def _reader(config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock) -> FoldReader:
    names = TopicNames(config.table.name)
    return FoldReader(
        kafka, names.ledger, names.epochs, lambda path, sha: load_document(storage, path, sha), clock
    )


def _refuse_live_writers(publication: Publication, clock: Clock) -> None:
    for instant in load_timelines(publication.storage).data.pending(Action.COMMIT, Action.DELTA_COMMIT):
        if heartbeat.is_alive(publication, instant.requested, clock.now_ms()):
            raise PendingWriteError(
                f"write {instant.requested} is pending and its writer's heartbeat is fresh: let that writer "
                "finish; if it is dead, try again in two minutes"
            )


def _roll_back_dead(term: Term, generator: InstantGenerator) -> list[str]:
    rolled_back = []
    for instant in load_timelines(term.storage).data.pending(Action.COMMIT, Action.DELTA_COMMIT):
        rollback_pending(term, instant.requested, generator)
        rolled_back.append(instant.requested)
    return rolled_back


def _first_state(
    config: TableConfigFile,
    storage: Storage,
    admin: Admin,
    clock: Clock,
    term: int,
    inputs: Mapping[str, InputTopic],
    other_topics: frozenset[str],
) -> tuple[NewLedger, FoldState]:
    timelines = load_timelines(storage)
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
        tombstones=CommittedTombstones(whole=True),
    )
    last = _last_commit(config, storage, timelines)
    if last is None:
        return NewLedger(0, None, {}), state
    held, anew = positions_held(config, admin, last.positions, inputs, other_topics)
    sharded = config.input.partitioning is InputPartitioning.SHARD
    lanes = {lane: LaneState(next=position) for lane, position in held.items()}
    if sharded:
        state.assign_lanes = lanes
    else:
        state.shuffle_lanes = lanes
    positions = {"keyed_next": held} if sharded else {"source_next": held}
    state.committed = Committed(last.epoch, -1, last.instant, last.completion, **positions)
    return NewLedger(last.epoch, last.instant, held, anew), state


class _LastCommit(NamedTuple):
    """``positions``: per input lane, or per assign lane where the input is partitioned by lane."""

    epoch: int
    instant: str | None
    completion: str | None
    positions: Mapping[str, int]


def _last_commit(config: TableConfigFile, storage: Storage, timelines: Timelines) -> _LastCommit | None:
    """Our newest one: by the active timeline, or by the table's own record when others archived it."""
    newest, record = newest_epoch(storage, timelines), read_ledger_record(storage)
    sharded = config.input.partitioning is InputPartitioning.SHARD
    if record is not None and record.committed.epoch > (newest[0] if newest is not None else 0):
        kept = record.committed
        # A table that was restored to an earlier state no longer has what the record is about.
        if kept.instant is not None and timelines.data.is_committed(kept.instant):
            positions = kept.keyed_next if sharded else kept.source_next
            return _LastCommit(kept.epoch, kept.instant, kept.completion, positions)
    if newest is None:
        return None
    epoch, instant = newest
    found = timelines.data.find(instant)
    assert found is not None
    extra = decode_commit_metadata(storage.read(instant_path(found)), instant_path(found)).extra_metadata
    assert extra[EPOCH_KEY] == str(epoch)
    sources = {
        partition if sharded else f"{log}:{partition}": position
        for log, partitions in json.loads(extra.get(_SOURCES_KEY, "{}")).items()
        for partition, (_, position) in partitions.items()
        if not sharded or log == config.input.topics[0]
    }
    return _LastCommit(epoch, instant, found.completion, sources)
