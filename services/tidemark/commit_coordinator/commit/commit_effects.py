"""Deciding and finishing an epoch: ARCHITECTURE.md, "Commit".

1. `decide`: check the attempt, choose the completion times, store the report, append `CommitDecided`
2. `finish`: publish the data and log files that the report has tickets of (none on a file system, where files
   are visible at once), and those of groups that the commit begins in a partitioned record index
3. make the metadata table's deltacommit
4. make the data table's commit, by which readers see the epoch
5. release the lock; delete markers and heartbeat, close the attempt; append `EpochCommitted`

A crash before `CommitDecided` can be read leaves the attempt open, and nothing is committed. After it, all
that `finish` does is a pure function of the decisions and of the documents that they name. So after a crash
anywhere, this coordinator or the next does the steps again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from tidemark.commit_coordinator.commit.attempt_effects import (
    give_back,
    planned_instant,
    refuse_hidden_bases,
    refuse_rolled_back,
    refuse_surprises,
)
from tidemark.commit_coordinator.commit.begun_partitions import (
    forget_prepared,
    note_stored,
    prepare_commit,
    publish_begun_files,
    refuse_begun,
    stored_report_of,
)
from tidemark.commit_coordinator.commit.commit_metadata import data_commit_metadata, metadata_commit
from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.commit.kept_indexes import refuse_other_indexes
from tidemark.commit_coordinator.commit.served_table import check_served, leave_stats_of_others
from tidemark.commit_coordinator.commit.stored_documents import load_document, store_document
from tidemark.commit_coordinator.commit.stored_report import read_report, report_document
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.commit.taken_groups import refuse_taken_groups
from tidemark.commit_coordinator.commit.timeline_look import TimelineLook
from tidemark.commit_coordinator.commit.unfinished_index import begun_since, check_commits
from tidemark.commit_coordinator.domain.actions import Decide, Finish
from tidemark.commit_coordinator.errors import AttemptLostError, DivergedError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.entries import CommitDecided, EpochCommitted, EpochPlanned
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import complete
from tidemark.hudi_format.commit.markers import delete_markers
from tidemark.hudi_format.errors import (
    CutOffFileError,
    FencedOutError,
    FileMissingError,
    HiddenBaseFilesError,
    TimelineConflictError,
    UnsupportedTableError,
)
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.timeline import State
from tidemark.hudi_format.timeline.avro_records import encode_commit_metadata

_WAY_OUT: Final = (
    "`tidemark verify` says whether table and index agree; `tidemark table adopt --new-ledger` goes on from "
    "the table's last commit (docs/failure-walkthrough.md)"
)
_READ_AGAIN: Final = (FileMissingError, CutOffFileError, HiddenBaseFilesError)
_log = logging.getLogger("tidemark.coordinator")


def decide(context: Context, action: Decide, report: Report) -> None:
    """Step 1. Keeps the table's lock: it is held until the data commit is made.

    Raises AttemptLostError when the attempt cannot commit any more, UnsupportedTableError when another writer
    changed the table in a way that is not served; both release the lock.
    """
    planned = action.planned
    prepare_commit(context, planned, report)
    document = report_document(report)
    with context.steps.step("decide_lock"):
        context.lock.acquire(context.lock_wait_ms, ends_epoch=True)
    try:
        timelines = load_timelines(context.storage)
        config = check_commits(context, timelines)
        context.shards.check(timelines.metadata)
        refuse_hidden_bases(context, timelines)
        difference = _check_pending(context, planned, timelines)
        if leave_stats_of_others(context, timelines, difference.moves_no_key):
            config = check_commits(context, timelines)
        refuse_other_indexes(planned, context.indexes.current(config, timelines))
        refuse_taken_groups(context, timelines, report)
        refuse_begun(context, planned, timelines, report)
        context.instants.observe(timelines.times())
        with context.steps.step("decide_store"):
            path, sha256 = store_document(context.storage, document)
            note_stored(context, report, sha256)
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
        context.hit(CoordinatorFailpoint.BEFORE_COMMIT_DECIDED)
        context.lock.check()
        with context.steps.step("decide_append"):
            context.log.append(decided)
        context.hit(CoordinatorFailpoint.AFTER_COMMIT_DECIDED)
    except (AttemptLostError, UnsupportedTableError, *_READ_AGAIN, OSError):
        give_back(context)
        raise


def finish(context: Context, action: Finish) -> Report:
    """Steps 2 to 5; repeatable by any coordinator. Returns the report that was committed; if step 3 was done
    here, its ``metadata_logs`` have the log file of `files`, too.

    The lock may have been lost since the decision, and another writer may have committed. Then it raises
    AttemptLostError while nothing is completed under the decision (the attempt is voided, the decision taken
    back), and DivergedError later; or SupersededError if that other writer is this coordinator's successor.
    """
    planned, decided = action.planned, action.decided
    assert planned.instant is not None
    context.lock.acquire(context.lock_wait_ms, ends_epoch=True)
    report = _decided_report(context, planned, decided)
    timelines = load_timelines(context.storage)
    completed_at = timelines.completed_at(planned.instant)
    if completed_at is None:
        if not _check_standing(context, action, timelines, report):
            _publish_files(context, planned, report)
            logs = _metadata_commit(context, planned, decided, report)
            report = msgspec.structs.replace(report, metadata_logs=tuple(logs))
        context.hit(CoordinatorFailpoint.AFTER_METADATA_COMMIT)
        with context.steps.step("commit_data"):
            _data_commit(context, planned, decided, report)
        context.hit(CoordinatorFailpoint.AFTER_DATA_COMMIT)
    elif completed_at != decided.data_completion:
        context.log.check_term()
        raise DivergedError(
            f"instant {planned.instant} was decided to complete at {decided.data_completion}, but the "
            f"timeline has it at {completed_at}: another writer completed it. {_WAY_OUT}"
        )
    with context.steps.step("commit_clean_up"):
        context.lock.release(context.instants.taken_ms)
        _clean_up(context, planned)
    context.hit(CoordinatorFailpoint.BEFORE_EPOCH_COMMITTED)
    context.log.append(
        EpochCommitted(
            term=context.term,
            epoch=planned.epoch,
            attempt=planned.attempt,
            instant=planned.instant,
            completion=decided.data_completion,
            committed_ms=context.clock.now_ms(),
            action=context.table.action.completed_word,
        )
    )
    context.hit(CoordinatorFailpoint.AFTER_EPOCH_COMMITTED)
    return report


def _decided_report(context: Context, planned: EpochPlanned, decided: CommitDecided) -> Report:
    instant, sha256 = planned.instant or "", decided.statuses_sha256
    report = stored_report_of(context, instant, sha256)
    if report is not None:
        return report
    return read_report(load_document(context.storage, decided.statuses_path, sha256), instant)


def _check_pending(context: Context, planned: EpochPlanned, timelines: Timelines) -> TimelineLook:
    """What is new on the timeline and no surprise. Raises AttemptLostError (rewind) when the instant or its
    tags do not hold any more.
    """
    assert planned.instant is not None
    ours = timelines.data.find(planned.instant)
    if ours is None or ours.state is not State.INFLIGHT:
        raise AttemptLostError(f"instant {planned.instant} was rolled back by another writer", rewind=True)
    refuse_rolled_back(context, timelines, planned.instant)
    return refuse_surprises(context, timelines, planned.instant)


def _check_standing(context: Context, action: Finish, timelines: Timelines, report: Report) -> bool:
    """Repeats the checks of step 1 before files are published; returns whether step 3 is done already.

    The decision was made under the lock. If another writer has completed something since, the lock was lost.

    1. Nothing happened meanwhile: the decision stands.
    2. Something did, and the metadata table's commit is not completed: raises AttemptLostError, and the
       decision is taken back. What moves no key, as a compaction that was planned, leaves the tags as they
       are: the same transactions are planned again, without a rewind.
    3. Something did, and it is completed: raises DivergedError.

    A completed file of our instant at the decided time is ours, whatever its bytes are: another version of
    Tidemark may have written it.
    """
    planned, decided = action.planned, action.decided
    assert planned.instant is not None
    if timelines.data.is_archived(planned.instant):
        raise DivergedError(
            f"epoch {decided.epoch} is decided, and its instant {planned.instant} lies before the timeline's "
            f"start without being in its archive: nobody can tell whether it was committed. {_WAY_OUT}"
        )
    newer = timelines.newer_than(decided.metadata_completion, planned.instant)
    begun = timelines.metadata.find(planned.instant)
    lost = _why_lost(context, action, timelines, newer, report)
    if begun is None or not begun.is_completed:
        if lost is not None or newer:
            raise _lost_with_the_lock(lost, newer)
        return False
    if lost is not None or newer or begun.completion != decided.metadata_completion:
        # If this coordinator was frozen, even while it listed, what it sees may be the work of its successor:
        # then this is no fault of another writer, and `check_term` raises SupersededError.
        context.log.check_term()
        what = str(lost or ", ".join(newer)) or f"its metadata commit is completed at {begun.completion}"
        raise DivergedError(
            f"epoch {decided.epoch} (instant {planned.instant}) is committed in the metadata table and not "
            f"in the table itself, and another writer ignored the table's lock meanwhile: {what}. Stop that "
            f"writer. {_WAY_OUT}"
        )
    return True


def _why_lost(
    context: Context, action: Finish, timelines: Timelines, newer: Sequence[str], report: Report
) -> AttemptLostError | None:
    """Why the checks of step 1 fail now, or None. ``newer``: other writers' newer file names.

    An index that another writer has not finished is no reason here unless its build began since the decision
    (`unfinished_index`), and behind step 3 one that is gone is none.
    """
    planned = action.planned
    try:
        _check_pending(context, planned, timelines)
        refuse_taken_groups(context, timelines, report)
        refuse_begun(context, planned, timelines, report)
        if build := begun_since(context, timelines, action.decided):
            raise AttemptLostError(f"another writer began to build an index ({build})", rewind=False)
        if newer or planned.column_stats is not None or planned.secondary:
            config = check_served(context, unfinished=True)
            context.shards.check(timelines.metadata)
            kept = context.indexes.current(config, timelines)
            refuse_other_indexes(planned, kept, is_written=_is_in_metadata(timelines, planned))
    except AttemptLostError as error:
        return error
    except UnsupportedTableError as error:
        return AttemptLostError(str(error), rewind=True)
    return None


def _is_in_metadata(timelines: Timelines, planned: EpochPlanned) -> bool:
    """Whether step 3 is done."""
    begun = timelines.metadata.find(planned.instant or "")
    return begun is not None and begun.is_completed


def _lost_with_the_lock(lost: AttemptLostError | None, newer: Sequence[str]) -> AttemptLostError:
    """The error for an attempt that was decided. Of ``newer`` nothing moves a key where nothing is lost."""
    why = lost or AttemptLostError(", ".join(newer), rewind=False)
    said = f"the table's lock was lost after the decision: {why.reason}"
    return AttemptLostError(said, why.rewind, why.awaited)


def _publish_files(context: Context, planned: EpochPlanned, report: Report) -> None:
    tickets = report.unpublished()
    if not tickets and not report.begun:
        return
    with context.steps.step("commit_files"):
        try:
            context.publishing.publish(tickets, context.lock.lease())
            publish_begun_files(context, planned, report)
        except (TimelineConflictError, FencedOutError) as error:
            context.log.check_term()
            raise AttemptLostError(f"the epoch's files cannot be published: {error}", rewind=True) from error


def _metadata_commit(
    context: Context, planned: EpochPlanned, decided: CommitDecided, report: Report
) -> list[MetadataLogFile]:
    with context.steps.step("commit_metadata"):
        try:
            return metadata_commit(context, planned, decided, report)
        except TimelineConflictError as error:
            # The log file that is there has other bytes: another version of Tidemark, or another writer, made
            # it.
            context.log.check_term()
            raise AttemptLostError(
                f"the metadata table's commit cannot go on: {error}", rewind=True
            ) from error


def _data_commit(context: Context, planned: EpochPlanned, decided: CommitDecided, report: Report) -> None:
    content = encode_commit_metadata(data_commit_metadata(context, planned, report))
    lease = context.lock.lease()
    inflight = planned_instant(context, planned, State.INFLIGHT)
    complete(context.publishing, inflight, decided.data_completion, content, lease=lease)


def _clean_up(context: Context, planned: EpochPlanned) -> None:
    assert planned.instant is not None
    forget_prepared(context)
    # First, so that a task which nobody needs any more announces no file behind the deletion of markers.
    context.publishing.close_attempt(planned.epoch, planned.attempt)
    delete_markers(context.storage, planned.instant)
    heartbeat.stop(context.storage, planned.instant)
