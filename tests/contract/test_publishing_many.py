"""The publication contract for many files that a term prepares at once: `Publisher.prepare_many`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.publication_tables import MADE, Table
from tidemark.hudi_format.errors import FencedOutError, TimelineConflictError
from tidemark.hudi_format.publication.tickets import Fate

COMPLETED = ".hoodie/timeline/1_2.commit"
MANY = [(f".hoodie/metadata/record_index/.{n}.log", b"data" if n % 3 else b"%d" % n) for n in range(70)]


@pytest.fixture(params=list(MADE))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return MADE[request.param](tmp_path)


def test_many_files_are_prepared_at_once_and_published_together(table: Table) -> None:
    term = table.begin()
    tickets = term.prepare_many(MANY)
    assert [(ticket.path, ticket.size) for ticket in tickets] == [(path, len(data)) for path, data in MANY]
    assert not any(table.content(path) for path, _ in MANY)
    other = term.prepare(COMPLETED, b"done")
    for _ in range(2):
        term.publish([*tickets[:50], other])
    assert [table.content(path) for path, _ in MANY] == [*(data for _, data in MANY[:50]), *[None] * 20]
    for _ in range(2):
        term.publish(tickets)
        assert [table.content(path) for path, _ in MANY] == [data for _, data in MANY]
    assert set(term.revoke(tickets).values()) == {Fate.PUBLISHED}
    table.publication.storage.delete(MANY[3][0])
    with pytest.raises(FencedOutError):
        term.publish(tickets[3:4])
    assert table.content(MANY[3][0]) is None


def test_of_many_files_a_name_that_holds_something_else_is_a_conflict(table: Table) -> None:
    term = table.begin()
    tickets = term.prepare_many(MANY)
    table.publication.storage.create(MANY[1][0], MANY[1][1])
    term.publish(tickets[:2])
    table.publication.storage.create(MANY[9][0], b"theirs")
    with pytest.raises(TimelineConflictError, match=MANY[9][0]):
        term.publish(tickets)
    assert table.content(MANY[9][0]) == b"theirs"


def test_many_files_that_were_revoked_or_whose_term_is_over_are_not_published(table: Table) -> None:
    term = table.begin()
    first = term.prepare_many(MANY)
    assert set(term.revoke(first[:2]).values()) == {Fate.REVOKED}
    with pytest.raises(FencedOutError):
        term.publish(first[:2])
    again = term.prepare_many(MANY)
    with pytest.raises(FencedOutError):
        term.publish(first)
    later = table.begin()
    with pytest.raises(FencedOutError):
        term.publish(again)
    assert not any(table.content(path) for path, _ in MANY)
    later.publish(later.prepare_many(MANY))
    assert [table.content(path) for path, _ in MANY] == [data for _, data in MANY]
