"""`tidemark recover`: takes the table over in a term of its own, ends what is open, and plans no epoch.

1. Claim the table, which fences any other coordinator.
   A rebuild of the record index that a killed command left is ended first.
2. Finish a decided epoch. Void an attempt that is planned and not decided; its input stays in the topics, and
   the next coordinator plans it again.
3. Roll void attempts back.
4. Commit and sweep service actions that are decided, void the others.
5. Free the table's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.agreement import check_agreement
from tidemark.commit_coordinator.commit.attempt_effects import clean_voided, void_attempt
from tidemark.commit_coordinator.commit.commit_effects import finish
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.domain.actions import CleanVoided, Finish, VoidAttempt
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.commit_coordinator.offline.open_services import end_open_services
from tidemark.commit_coordinator.offline.opened_ledger import opened_ledger
from tidemark.commit_coordinator.offline.term_context import term_context
from tidemark.commit_coordinator.opening.ledger_identity import check_belongs, ledger_id, location_of
from tidemark.commit_coordinator.opening.takeover import settle_rebuild, take_over
from tidemark.config import TableConfigFile
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.table_lock import COMMAND_SILENT_MS
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import KafkaClient, MissingTopicError

_SETTLE_POLL_MS: Final = 100
_REASON: Final = "tidemark recover"


@dataclass(frozen=True)
class Recovered:
    """The epoch that was finished, if any, the epochs whose attempts were rolled back, and the numbers of the
    service actions that were ended.
    """

    finished: int | None
    voided: tuple[int, ...]
    services: tuple[int, ...] = ()


def recover(
    config: TableConfigFile, kafka: KafkaClient, storage: Storage, clock: Clock, ids: IdSource
) -> Recovered:
    """Claims the table, ends what is open, frees the lock. Repeatable; fences a running coordinator.

    Raises LockHeldError (another engine holds the lock), SupersededError, DivergedError, MovedOrCopiedError,
    MissingTopicError.
    """
    require_ledger(kafka, TopicNames(config.table.name))
    with opened_ledger(config, kafka, storage, clock) as (reader, log):
        reader.catch_up()
        ledger = ledger_id(storage, ids)
        check_belongs(reader.fold.state, config.table.name, ledger, location_of(storage))
        term = take_over(
            open_publication(storage, clock, ids), log, lambda: reader.fold, f"recover-{ids.uuid()}", ledger
        )
        check_agreement(storage, load_timelines(storage), reader.fold.state)
        settle_rebuild(term, reader.fold.state.shards)
        context = term_context(config, term, clock, ids, log, reader)
        return end_what_is_open(context, config)


def require_ledger(kafka: KafkaClient, topics: TopicNames) -> None:
    """Raises MissingTopicError where the table has no ledger on this Kafka."""
    admin = kafka.admin()
    try:
        missing = [name for name in (topics.ledger, topics.epochs) if admin.partitions(name) is None]
    finally:
        admin.close()
    if missing:
        raise MissingTopicError(
            f"there is no topic {missing[0]}: the table has no ledger on this Kafka. If it was lost, "
            "`tidemark table adopt --new-ledger` frees the table and starts a new one"
        )


def end_what_is_open(context: Context, config: TableConfigFile) -> Recovered:
    """Steps 2 to 5, in a term of the caller's."""
    _outwait_command(context)
    state = context.fold().state
    planned, decided = state.planned, state.decided
    finished = None
    if planned is not None and decided is not None:
        try:
            finish(context, Finish(planned, decided))
            finished = planned.epoch
        except AttemptLostError as error:
            revokes = decided.data_completion
            void_attempt(context, VoidAttempt(planned, error.reason, error.rewind, revokes))
    elif planned is not None:
        void_attempt(context, VoidAttempt(planned, _REASON, rewind=False))
    voided = tuple(context.fold().state.voided)
    left = voided
    while left:
        waiting = clean_voided(context, CleanVoided(left))
        left = tuple(waiting)
        if waiting:
            context.clock.sleep_ms(max(min(waiting.values()) - context.clock.now_ms(), _SETTLE_POLL_MS))
    services = end_open_services(context, config)
    # An older term may have left the lock, which is given back after the clocks' skew.
    context.lock.acquire(context.lock_wait_ms, ends_epoch=True)
    context.lock.release(context.instants.taken_ms or context.clock.now_ms())
    context.lock.free()
    return Recovered(
        finished,
        tuple(attempt.epoch for attempt in voided),
        tuple(planned.service for planned in services),
    )


def _outwait_command(context: Context) -> None:
    """Takes the lock over that a killed `tidemark index` command left: it has to be silent for a time, which
    no step below waits for. Raises LockHeldError for one that lives.
    """
    holder = context.lock.holder()
    if holder is not None and holder.command:
        context.lock.acquire(COMMAND_SILENT_MS + _SETTLE_POLL_MS, ends_epoch=True)
