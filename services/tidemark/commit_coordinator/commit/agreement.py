"""Whether the table's timeline and the decisions agree about which epoch was committed last."""

from __future__ import annotations

from typing import Final

from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.epoch_protocol.state import Committed, FoldState
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

EPOCH_KEY: Final = "tidemark.epoch"


def check_agreement(storage: Storage, timelines: Timelines, state: FoldState) -> None:
    """Raises DivergedError when the data timeline contradicts the decisions. Changes nothing.

    The newest epoch on the timeline must be the last committed epoch with rows, or the decided one: a former
    coordinator may have made that commit and died before it appended `EpochCommitted`.
    """
    committed = state.committed
    newest = newest_epoch(storage, timelines)
    decided = state.planned if state.decided is not None else None
    if newest is not None and newest[0] > committed.epoch:
        if decided is not None and newest == (decided.epoch, decided.instant):
            return
        raise DivergedError(
            f"the table's timeline has epoch {newest[0]} (instant {newest[1]}), but the decisions end with "
            f"epoch {committed.epoch}: Tidemark's topics were lost, or belong to another table. `tidemark "
            "table adopt --new-ledger` starts a new ledger from the timeline"
        )
    check_not_undone(timelines, committed)


def check_not_undone(timelines: Timelines, committed: Committed) -> None:
    """Raises DivergedError when our last commit is neither on the active data timeline nor archived."""
    if committed.instant is not None and not timelines.data.is_committed(committed.instant):
        raise DivergedError(
            f"epoch {committed.epoch} was committed as instant {committed.instant}, which is not on the "
            "table's timeline: a commit of ours was undone, or the table was replaced. `tidemark table adopt "
            "--new-ledger` starts a new ledger from the timeline"
        )


def newest_epoch(storage: Storage, timelines: Timelines) -> tuple[int, str] | None:
    """(epoch, instant) of our newest completed commit on the active timeline; None when there is none.

    Our commits carry `tidemark.epoch` in their extra metadata. Newest is by completion time.
    """
    commits = timelines.data.completed(Action.COMMIT, Action.DELTA_COMMIT)
    for instant in sorted(commits, key=lambda commit: commit.completion or "", reverse=True):
        extra = decode_commit_metadata(
            storage.read(instant_path(instant)), instant_path(instant)
        ).extra_metadata
        if EPOCH_KEY in extra:
            return int(extra[EPOCH_KEY]), instant.requested
    return None
