"""From a claim to a coordinator that may act: end older terms, check that table and decisions agree."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.index_shards import check_number
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.opening.ledger_identity import location_of
from tidemark.epoch_protocol.fold import Fold
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.publication.port import Publication, Term
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.ledger_client.errors import SupersededError


def take_over(
    publication: Publication,
    log: DecisionsLog,
    fold: Callable[[], Fold],
    owner: str,
    ledger: str = "",
    shards: int = 0,
) -> Term:
    """Claims, ends all older terms, opens this one. ``ledger``: the table's
    (`ledger_identity`); the claim names it, and where the table lies now. ``shards``: the number that the
    table's record index has, of who serves the table; raises UnsupportedTableError, and claims nothing, where
    the topics are made for another one.

    The second look at the topics closes the gap between claim and term: a coordinator that was frozen in
    between, and replaced, stops here instead of opening a door for its writers.
    """
    if shards:
        check_number(fold().state.shards, shards)
    term = log.claim(owner, ledger, location_of(publication.storage) if ledger else None, shards)
    try:
        opened = publication.open_term(TermId(term, ledger))
    except AlreadyExistsError as error:
        raise DivergedError(_foreign_term_text(term, error)) from error
    log.catch_up()
    if fold().state.coordinator_term != term:
        raise SupersededError("a newer coordinator has claimed this table")
    opened.remove_older()
    return opened


def _foreign_term_text(term: int, found: AlreadyExistsError) -> str:
    return (
        f"{found}, and term {term} has only just begun in these topics: "
        "a coordinator of another ledger began that term. Do kafka.bootstrap.servers and table.path belong "
        "together? If the topics were lost or replaced: `tidemark table adopt --new-ledger` ends the old "
        "ledger's terms and starts a new one from the table's timeline"
    )
