"""From a claim to a coordinator that may act: end older terms, check that table and decisions agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.commit_coordinator.decisions_log import DecisionsLog
from tidemark.commit_coordinator.errors import DivergedError, SupersededError
from tidemark.commit_coordinator.index_shards import check_number
from tidemark.commit_coordinator.ledger_identity import location_of
from tidemark.commit_coordinator.staging import end_older_terms, open_term, remove_ended, term_dir
from tidemark.commit_coordinator.table_state import Timelines
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.state import Committed, FoldState
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

EPOCH_KEY: Final = "tidemark.epoch"


def take_over(
    storage: Storage,
    log: DecisionsLog,
    fold: Callable[[], Fold],
    owner: str,
    ledger: str = "",
    shards: int = 0,
) -> str:
    """Claims, ends all older terms, opens this term's folder; returns the folder. ``ledger``: the table's
    (`ledger_identity`); the claim names it, and where the table lies now. ``shards``: the number that the
    table's record index has, of who serves the table; raises UnsupportedTableError, and claims nothing, where
    the topics are made for another one.

    The second look at the topics closes the gap between claim and folder: a coordinator that was frozen in
    between, and replaced, stops here instead of opening a door for its writers.
    """
    if shards:
        check_number(fold().state.shards, shards)
    term = log.claim(owner, ledger, location_of(storage) if ledger else None, shards)
    end_older_terms(storage, term)
    try:
        folder = open_term(storage, term)
    except AlreadyExistsError as error:
        raise DivergedError(_foreign_term_text(storage, term)) from error
    log.catch_up()
    if fold().state.coordinator_term != term:
        raise SupersededError("a newer coordinator has claimed this table")
    remove_ended(storage, term)
    return folder


def _foreign_term_text(storage: Storage, term: int) -> str:
    return (
        f"{storage.base_uri}/{term_dir(term)} is there, and term {term} has only just begun in these topics: "
        "a coordinator of another ledger made that folder. Do kafka.bootstrap.servers and table.path belong "
        "together? If the topics were lost or replaced: `tidemark table adopt --new-ledger` ends the old "
        "ledger's terms and starts a new one from the table's timeline"
    )


def check_agreement(storage: Storage, timelines: Timelines, state: FoldState) -> None:
    """Refuses loudly when the timeline and the decisions tell different stories.

    The newest epoch on the timeline must be the last committed one with rows, or the decided one.
    """
    committed = state.committed
    newest = newest_epoch(storage, timelines)
    decided = state.planned if state.decided is not None else None
    if newest is not None and newest[0] > committed.epoch:
        if decided is not None and newest == (decided.epoch, decided.instant):
            return
        raise DivergedError(
            f"the table's timeline has epoch {newest[0]} (instant {newest[1]}), the topics know "
            f"{committed.epoch} epochs: they were lost or are another table's. `tidemark table adopt "
            "--new-ledger` starts a new ledger from the timeline"
        )
    check_not_undone(timelines, committed)


def check_not_undone(timelines: Timelines, committed: Committed) -> None:
    """Raises DivergedError when the last commit of ours is not on the timeline any more."""
    if committed.instant is not None and not timelines.data.is_committed(committed.instant):
        raise DivergedError(
            f"epoch {committed.epoch} was committed as instant {committed.instant}, which is not on the "
            "table's timeline: a commit of ours was undone, or the table was replaced. `tidemark table adopt "
            "--new-ledger` starts a new ledger from the timeline"
        )


def newest_epoch(storage: Storage, timelines: Timelines) -> tuple[int, str] | None:
    """(epoch, instant) of the newest completed commit of ours in the active timeline."""
    commits = timelines.data.completed(Action.COMMIT, Action.DELTA_COMMIT)
    for instant in sorted(commits, key=lambda each: each.completion or "", reverse=True):
        extra = decode_commit_metadata(
            storage.read(instant_path(instant)), instant_path(instant)
        ).extra_metadata
        if EPOCH_KEY in extra:
            return int(extra[EPOCH_KEY]), instant.requested
    return None
