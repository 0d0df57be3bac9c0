"""`tidemark table adopt --new-ledger`: begins a new ledger from the table's timeline, if the topics were
lost.

1. Refuse if a writer is alive, if the topics belong to a table at another place, or if an input topic's name
   is misspelt. Until here nothing is changed.
2. End all terms; a lock that one of them left stays taken until step 4. Give the table a new ledger id; from
   here on nobody takes the former topics or caches for this table's.
3. Delete Tidemark's own topics, except dead letters, and create them anew.
4. Take the table over, and a dead coordinator's lock in one step. Under the lock end what a service action
   left pending, then roll back the pending writes of dead writers.
5. Store a fold with the epoch and the input positions (`tidemark.source_offsets`) of our newest commit, and
   append it to the new decisions as their first snapshot. The input is read again from there.

The guarantee across that is *at least once*. Events that were committed after those positions are applied a
second time, which changes nothing for upserts with an ordering field. Tombstones are lost, so an event that
is older than a delete may bring its row back.

Generations start at the clock's seconds. Caches may hold values "exact as of generation n" of the old ledger,
and no generation of the new one may equal one of those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.commit_coordinator.commit.agreement import EPOCH_KEY, newest_epoch
from tidemark.commit_coordinator.commit.stored_documents import store_document
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.input.starts import INPUT_EARLIEST
from tidemark.commit_coordinator.offline.new_ledger_inputs import (
    deleted_before_begun,
    inputs_of_new_ledger,
    positions_held,
    record_starts,
)
from tidemark.commit_coordinator.offline.open_services import end_services_of_former_ledger
from tidemark.commit_coordinator.offline.opened_ledger import ledger_reader, opened_ledger
from tidemark.commit_coordinator.offline.term_context import term_context
from tidemark.commit_coordinator.opening.ledger_identity import MovedOrCopiedError, is_same_place, location_of
from tidemark.commit_coordinator.opening.ledger_record import read_ledger_record
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.commit_coordinator.opening.topics_setup import (
    LANE_SOURCE,
    RECORD,
    OpenedInputs,
    ensure_topics,
    keep_dead_letter_settings,
)
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import PROTOCOL_VERSION, SnapshotTaken
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
from tidemark.hudi_format.partitioned_lanes import LANE_FUNCTION_PATH
from tidemark.hudi_format.publication.file_times import file_time_ms
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.port import Publication, Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import WRITTEN
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.timeline.identity import judged_instants
from tidemark.ledger_client.table_identity import TABLE_ID, moved_or_copied_text
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import Admin, KafkaClient, OffsetOutOfRangeError

_LOCK_WAIT_MS: Final = 5_000
_SOURCES_KEY: Final = "tidemark.source_offsets"


class PendingWriteError(CoordinatorError):
    """A write is pending on the timeline, and its writer's heartbeat is fresh."""

    kind = ErrorKind.CONFLICT


@dataclass(frozen=True)
class NewLedger:
    """Where the new ledger starts.

    ``epoch``, ``instant``: our newest commit. ``positions``: lane -> next offset. ``anew``: lanes whose
    position the topic does not hold any more; they are read from where they first began, or from the topic's
    start. ``rolled_back``: the instants of dead writers.
    """

    epoch: int
    instant: str | None
    positions: dict[str, int]
    anew: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)


def new_ledger(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, ids: IdSource
) -> NewLedger:
    """Begins a new ledger in the steps above. Repeatable. No service of the table may run.

    Raises, before anything is deleted: LockHeldError, PendingWriteError, MovedOrCopiedError when the topics
    belong to a table at another place, TopicsChangedError for a misspelt input topic, TopicSettingsError for
    the topic of dead letters. Raises KafkaError.
    """
    topics, admin = TopicNames(config.table.name), kafka.admin()
    publication = open_publication(storage, clock, ids)
    try:
        inputs, other_topics, deleted = _checked_inputs(config, kafka, publication, clock, admin)
        keep_dead_letter_settings(config, admin)
        publication.end_all_terms()
        # From here on nobody takes topics or caches of the former ledger for this table's.
        ledger = ids.uuid()
        storage.replace(TABLE_ID, ledger.encode())
        admin.delete_topics(
            [topics.keyed, topics.data, topics.index, topics.tombstones, topics.ledger, topics.epochs]
        )
        storage.delete(RECORD)
        storage.delete(LANE_SOURCE)
        storage.delete(LANE_FUNCTION_PATH)
        ensure_topics(config, admin)
        with opened_ledger(config, kafka, storage, clock) as (reader, log):
            term = take_over(publication, log, lambda: reader.fold, f"new-ledger-{ids.uuid()}", ledger)
            lock = term.lock
            instants = InstantGenerator(clock)
            lock.acquire(_LOCK_WAIT_MS)
            # After an error the lock stays taken: what is not rolled back may be committed in the metadata
            # table only.
            context = term_context(config, term, clock, ids, log, reader)
            rolled_back = end_services_of_former_ledger(context, config)
            rolled_back += _roll_back_dead(term, instants)
            try:
                begun, state = _first_state(
                    config, storage, admin, clock, log.term, inputs.topics, other_topics
                )
                state.ledger, state.location = ledger, location_of(storage)
                record_starts(config, storage, admin, inputs, begun.positions)
                path, sha256 = store_document(storage, Fold(state).snapshot())
                log.append(SnapshotTaken(log.term, path, sha256, 0))
                # Behind the snapshot: who repeats what broke off before it has to find the former topics.
                storage.replace(INPUT_TOPICS_PATH, encode_input_topics(InputTopics(inputs.topics)))
            finally:
                lock.release(instants.taken_ms)
                lock.free()
            # Readers must start at the snapshot: entries before it would be applied to an empty fold.
            admin.delete_records({topics.epochs_partition: reader.fold.state.decisions_next - 1})
    finally:
        admin.close()
    # What the former ledger had not begun and Kafka has deleted is gone: lanes begin at what there is now.
    storage.delete(INPUT_EARLIEST)
    begun.anew.extend(deleted)
    begun.rolled_back.extend(rolled_back)
    return begun


def prepare_topics(config: TableConfigFile, kafka: KafkaClient) -> None:
    """Gives the topic of dead letters, which stays, the settings that the configuration has. `new_ledger`
    does so, too; for a caller that changes the table before. Raises TopicSettingsError.
    """
    admin = kafka.admin()
    try:
        keep_dead_letter_settings(config, admin)
    finally:
        admin.close()


def check_new_ledger(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, ids: IdSource
) -> None:
    """Raises what `new_ledger` raises before it deletes anything. Changes nothing; while a write is pending
    it makes a file for a moment, by which it learns the storage's time.
    """
    admin = kafka.admin()
    try:
        _checked_inputs(config, kafka, open_publication(storage, clock, ids), clock, admin)
    finally:
        admin.close()


def _checked_inputs(
    config: TableConfigFile, kafka: KafkaClient, publication: Publication, clock: Clock, admin: Admin
) -> tuple[OpenedInputs, frozenset[str], list[str]]:
    check_replaceable(config, kafka, publication.storage, clock)
    inputs, other_topics = inputs_of_new_ledger(config, publication.storage, admin)
    deleted = _deleted_inputs(config, publication.storage, admin, inputs.topics, other_topics)
    # The last one, because it may write: a read-only copy is refused because it is a copy.
    _refuse_live_writers(publication, clock)
    return inputs, other_topics, deleted


def check_replaceable(config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock) -> None:
    """Raises MovedOrCopiedError when the topics of that name belong to a table at another place.

    To delete them would destroy that table's ledger. Topics that cannot be read are no reason to refuse: they
    are why a new ledger is begun.
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
    """The state of the former ledger's fold, as far as it can be read; None if a topic is missing.

    Raises KafkaError.
    """
    names, admin = TopicNames(config.table.name), kafka.admin()
    try:
        if any(admin.partitions(name) is None for name in (names.ledger, names.epochs)):
            return None
    finally:
        admin.close()
    reader = ledger_reader(config, kafka, storage, clock)
    try:
        reader.catch_up()
    except (ProtocolError, HudiFormatError, DeadlineExceededError, OffsetOutOfRangeError):
        # The claims that were read name the table's place, even if entries behind them are damaged.
        return reader.fold.state
    finally:
        reader.close()
    return reader.fold.state


def _refuse_live_writers(publication: Publication, clock: Clock) -> None:
    pending = load_timelines(publication.storage).data.pending(*WRITTEN)
    now_ms = file_time_ms(publication, clock) if pending else 0
    for instant in pending:
        if heartbeat.is_alive(publication, instant.requested, now_ms):
            raise PendingWriteError(
                f"write {instant.requested} is pending and its writer's heartbeat is fresh: let that writer "
                "finish; if it is dead, try again when its last heartbeat is two minutes old"
            )


def _roll_back_dead(term: Term, generator: InstantGenerator) -> list[str]:
    rolled_back = []
    for instant in load_timelines(term.storage).data.pending(*WRITTEN):
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
        # Caches of the old ledger must not be used: nobody knows what of the table they reflect.
        stamps_from=generation,
        rewinds=[Rewind(generation, -1)],
        tombstones=CommittedTombstones(whole=True),
        protocol=PROTOCOL_VERSION,
    )
    last = _last_commit(config, storage, timelines)
    if last is None:
        return NewLedger(0, None, {}), state
    held, anew = positions_held(config, admin, last.positions, inputs, other_topics)
    sharded = config.input.is_sharded
    lanes = {lane: LaneState(next=position) for lane, position in held.items()}
    if sharded:
        state.assign_lanes = lanes
    else:
        state.shuffle_lanes = lanes
    positions = {"keyed_next": held} if sharded else {"source_next": held}
    state.committed = Committed(last.epoch, -1, last.instant, last.completion, **positions)
    return NewLedger(last.epoch, last.instant, held, anew), state


def _deleted_inputs(
    config: TableConfigFile,
    storage: Storage,
    admin: Admin,
    inputs: Mapping[str, InputTopic],
    other_topics: frozenset[str],
) -> list[str]:
    last = _last_commit(config, storage, load_timelines(storage))
    positions = last.positions if last is not None else {}
    return deleted_before_begun(config, storage, admin, positions, inputs, other_topics)


class _LastCommit(NamedTuple):
    """``positions``: input lane -> next offset; assign lane if the input is partitioned by lane."""

    epoch: int
    instant: str | None
    completion: str | None
    positions: Mapping[str, int]


def _last_commit(config: TableConfigFile, storage: Storage, timelines: Timelines) -> _LastCommit | None:
    """Our newest commit, from the active timeline; from the table's record if other writers archived it."""
    newest, record = newest_epoch(storage, timelines), read_ledger_record(storage)
    sharded = config.input.is_sharded
    if record is not None and record.committed.epoch > (newest[0] if newest is not None else 0):
        kept = record.committed
        # If the table was restored to an earlier state, the recorded commit is not on its timeline any more.
        if kept.instant is not None and timelines.data.is_committed(kept.instant):
            positions = kept.keyed_next if sharded else kept.source_next
            return _LastCommit(kept.epoch, kept.instant, kept.completion, positions)
    if newest is None:
        return None
    epoch, instant = newest
    commit = timelines.data.find(instant)
    assert commit is not None
    extra = decode_commit_metadata(storage.read(instant_path(commit)), instant_path(commit)).extra_metadata
    assert extra[EPOCH_KEY] == str(epoch)
    sources = {
        partition if sharded else f"{log}:{partition}": position
        for log, partitions in json.loads(extra.get(_SOURCES_KEY, "{}")).items()
        for partition, (_, position) in partitions.items()
        if not sharded or log == config.input.topics[0]
    }
    return _LastCommit(epoch, instant, commit.completion, sources)
