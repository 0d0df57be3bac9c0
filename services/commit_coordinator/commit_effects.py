"""Deciding and finishing an epoch: ARCHITECTURE.md, "Commit", steps 1 to 4.

Before `CommitDecided` is readable nothing has happened; after it everything here is a pure function of the
decisions and of the documents they name, so a crash anywhere is repaired by doing it again, by this
coordinator or the next.
"""

from __future__ import annotations

import msgspec

from commit_coordinator.attempt_effects import (
    give_back,
    planned_instant,
    refuse_foreign,
    refuse_rolled_back,
)
from commit_coordinator.commit_metadata import data_commit_metadata, metadata_commit
from commit_coordinator.context import Context, Report
from commit_coordinator.domain.actions import Decide, Finish
from commit_coordinator.errors import AttemptLostError, DivergedError
from commit_coordinator.staging import close_attempt, load_document, store_document, term_dir
from commit_coordinator.table_state import Timelines, load_timelines
from epoch_protocol.entries import CommitDecided, EpochCommitted, EpochPlanned
from hudi_format.commit import heartbeat
from hudi_format.commit.instants import complete
from hudi_format.commit.markers import delete_markers
from hudi_format.errors import UnsupportedTableError
from hudi_format.timeline import State
from hudi_format.timeline.avro_records import encode_commit_metadata
from hudi_format.validation import check_indexes


def decide(context: Context, action: Decide, report: Report) -> None:
    """Step 1. Leaves the table's lock held: it is kept until the data commit is there.

    Raises AttemptLostError when the attempt cannot commit any more; the lock is free then.
    """
    planned = action.planned
    with context.steps.step("decide_lock"):
        context.lock.acquire(context.lock_wait_ms)
    try:
        timelines = load_timelines(context.storage)
        _check_attempt(context, planned, timelines)
        context.instants.observe(timelines.times())
        with context.steps.step("decide_store"):
            document = msgspec.json.encode(report, order="deterministic")
            path, sha256 = store_document(context.storage, document)
        decided = CommitDecided(
            term=context.term,
            epoch=planned.epoch,
            attempt=planned.attempt,
            metadata_completion=context.instants.next(),
            data_completion=context.instants.next(),
            statuses_path=path,
            statuses_sha256=sha256,
            decided_ms=context.clock.now_ms(),
        )
        context.hit("before_commit_decided")
        context.lock.check()
        with context.steps.step("decide_append"):
            context.log.append(decided)
        context.hit("after_commit_decided")
    except (AttemptLostError, UnsupportedTableError):
        give_back(context)
        raise


def finish(context: Context, action: Finish) -> Report:
    """Steps 2 to 4; repeatable by any coordinator. Returns the statuses that were committed."""
    planned, decided = action.planned, action.decided
    assert planned.instant is not None
    context.lock.acquire(context.lock_wait_ms)
    document = load_document(context.storage, decided.statuses_path, decided.statuses_sha256)
    report = msgspec.json.decode(document, type=Report)
    timelines = load_timelines(context.storage)
    ours = timelines.data.find(planned.instant)
    if ours is None or ours.state is not State.COMPLETED:
        _check_nothing_newer(decided, timelines)
        with context.steps.step("commit_metadata"):
            metadata_commit(context, planned, decided, report)
        context.hit("after_metadata_commit")
        with context.steps.step("commit_data"):
            _data_commit(context, planned, decided, report)
        context.hit("after_data_commit")
    elif ours.completion != decided.data_completion:
        raise DivergedError(
            f"instant {planned.instant} was decided to complete at {decided.data_completion}, but the "
            f"timeline has it at {ours.completion}: another writer completed it. See "
            "docs/failure-walkthrough.md"
        )
    with context.steps.step("commit_clean_up"):
        context.lock.release()
        _clean_up(context, planned)
    context.hit("before_epoch_committed")
    context.log.append(
        EpochCommitted(
            term=context.term,
            epoch=planned.epoch,
            attempt=planned.attempt,
            instant=planned.instant,
            completion=decided.data_completion,
            committed_ms=context.clock.now_ms(),
        )
    )
    context.hit("after_epoch_committed")
    return report


def _check_attempt(context: Context, planned: EpochPlanned, timelines: Timelines) -> None:
    assert planned.instant is not None
    ours = timelines.data.find(planned.instant)
    if ours is None or ours.state is not State.INFLIGHT:
        raise AttemptLostError(f"instant {planned.instant} was rolled back by another writer", rewind=True)
    refuse_rolled_back(context, timelines, planned.instant)
    check_indexes(context.storage)
    refuse_foreign(timelines, context.fold().state.handled, planned.instant)


def _check_nothing_newer(decided: CommitDecided, timelines: Timelines) -> None:
    newest = timelines.latest_completion()
    if newest > decided.data_completion:
        raise DivergedError(
            f"epoch {decided.epoch} was decided to complete at {decided.data_completion}, but the timeline "
            f"has a completion at {newest}: another writer ignored the table's lock. Stop that writer, then "
            "see docs/failure-walkthrough.md"
        )


def _data_commit(context: Context, planned: EpochPlanned, decided: CommitDecided, report: Report) -> None:
    content = encode_commit_metadata(data_commit_metadata(context, planned, report))
    context.lock.check()
    complete(
        context.storage,
        planned_instant(context, planned, State.INFLIGHT),
        decided.data_completion,
        content,
        staging_dir=term_dir(context.term),
    )


def _clean_up(context: Context, planned: EpochPlanned) -> None:
    assert planned.instant is not None
    delete_markers(context.storage, planned.instant)
    heartbeat.stop(context.storage, planned.instant)
    close_attempt(context.storage, context.term, planned.epoch, planned.attempt)
