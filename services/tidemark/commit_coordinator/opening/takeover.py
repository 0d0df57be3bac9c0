"""The takeover: a coordinator claims the table, ends older terms, and may then make files in its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.index_shards import check_number
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.opening.ledger_identity import location_of
from tidemark.epoch_protocol.fold import Fold
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.publication.port import Publication, Term
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.table_services.rebuilding.documents import begun_rebuild
from tidemark.hudi_format.table_services.rebuilding.switching import NextStep, settle, shards_of_topics
from tidemark.ledger_client.errors import SupersededError

_LOCK_WAIT_MS: Final = 30_000
_log = logging.getLogger("tidemark.coordinator")


def take_over(
    publication: Publication,
    log: DecisionsLog,
    fold: Callable[[], Fold],
    owner: str,
    ledger: str = "",
    shards: int = 0,
) -> Term:
    """Takes the table over, and returns the term, which is the right to make files:

    1. Check that the record index has the number of shards that the topics are made for. A rebuild of the
       index that switched, and died before its claim, left a document that says another number is right.
    2. Append the claim; its offset is the term. The producer of the former coordinator is fenced by it.
    3. End all older terms in the table's folder, and begin this one.
    4. Read the topics once more. If this coordinator was frozen between 2 and 3, and replaced, it stops here
       and makes no file.
    5. Delete what older terms left behind, except what is prepared for open service actions.

    ``ledger``: the identity of the table's ledger, which the claim names together with the table's place.
    ``shards``: of the record index; 0 leaves out step 1. Raises UnsupportedTableError (before the claim) for
    another number of shards, SupersededError, DivergedError for topics of another ledger.
    """
    if shards:
        check_number(shards_of_topics(publication.storage, fold().state.shards), shards)
    term = log.claim(owner, ledger, location_of(publication.storage) if ledger else None, shards)
    try:
        opened = publication.open_term(TermId(term, ledger))
    except AlreadyExistsError as error:
        raise DivergedError(_foreign_term_text(term, error)) from error
    log.catch_up()
    if fold().state.coordinator_term != term:
        raise SupersededError("a newer coordinator has claimed this table")
    opened.remove_older(keep=[action.planned.service for action in fold().state.services.values()])
    return opened


def settle_rebuild(term: Term, claimed: int) -> None:
    """Ends what a rebuild of the record index left when its command died. Takes the table's lock only if
    there is something to end. ``claimed``: the number of shards that the newest claim named, 0 if none did.

    Raises LockHeldError where another engine holds the lock, FencedOutError, CorruptFileError.
    """
    if begun_rebuild(term.storage) is None:
        return
    term.lock.acquire(_LOCK_WAIT_MS, ends_epoch=True)
    try:
        step = settle(term, claimed)
        # The command itself finishes so, behind its claim.
        level = logging.INFO if step is NextStep.FINISH else logging.WARNING
        _log.log(level, "a rebuild of the record index had begun to switch: %s", step)
    finally:
        term.lock.release()
        term.lock.free()


def _foreign_term_text(term: int, error: AlreadyExistsError) -> str:
    return (
        f"{error}, and term {term} has only just begun in these topics: "
        "a coordinator of another ledger began that term. Do kafka.bootstrap.servers and table.path belong "
        "together? If the topics were lost or replaced: `tidemark table adopt --new-ledger` ends the old "
        "ledger's terms and starts a new one from the table's timeline"
    )
