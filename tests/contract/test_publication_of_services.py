"""The contract of the publication port for service actions: what tasks prepare is seen by nobody before it is
published, and outlives the coordinator that opened the action.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.memory_storage import InMemoryStorage
from tests.contract.publication_tables import MADE, Table, over_folders
from tidemark.hudi_format.errors import AlreadyExistsError, FencedOutError, TimelineConflictError
from tidemark.hudi_format.publication.tickets import Fate, Prepared, Settled, Ticket

FILE, OTHER = "d1/base.parquet", "d2/base.parquet"


@pytest.fixture(params=list(MADE))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return MADE[request.param](tmp_path)


def test_a_file_is_seen_when_it_is_published_and_not_before(table: Table) -> None:
    term = table.begin()
    ticket = table.files(term.open_service(1)).prepare(FILE, b"data")
    assert (ticket.path, ticket.size, ticket.is_visible) == (FILE, 4, False)
    assert ticket.sha256 == hashlib.sha256(b"data").hexdigest()
    assert not table.publication.storage.exists("d1")
    for _ in range(2):
        term.publish([ticket])
        assert table.content(FILE) == b"data"
    assert term.revoke([ticket]) == {ticket: Fate.PUBLISHED}


def test_a_file_grows_piece_by_piece_and_nobody_sees_it(table: Table) -> None:
    term = table.begin()
    files = table.files(term.open_service(1))
    growing = files.grow(FILE)
    for number in range(20):
        growing.write(b"%03d" % number)
        assert files.prepared(FILE) is None
    ticket = growing.finish(b"20 pieces")
    growing.discard()
    assert files.prepared(FILE) == Prepared(ticket, b"20 pieces")
    assert ticket.size == 60
    term.publish([ticket])
    assert table.content(FILE) == b"".join(b"%03d" % number for number in range(20))


def test_what_is_discarded_is_never_prepared(table: Table) -> None:
    term = table.begin()
    files = table.files(term.open_service(1))
    growing = files.grow(FILE)
    growing.write(b"half")
    growing.discard()
    assert files.prepared(FILE) is None
    assert term.adopt(1, [FILE]) == []
    assert files.prepare(FILE, b"data").size == 4


def test_the_first_task_prepares_and_another_one_with_the_same_content_gets_its_ticket(table: Table) -> None:
    files = table.files(table.begin().open_service(1))
    first = files.prepare(FILE, b"data", b"note")
    assert files.prepare(FILE, b"data", b"of the second") == first
    with pytest.raises(AlreadyExistsError):
        files.prepare(FILE, b"other")
    assert files.prepared(FILE) == Prepared(first, b"note")


def test_a_name_that_holds_another_content_is_a_conflict_and_the_same_content_counts(table: Table) -> None:
    term = table.begin()
    files = table.files(term.open_service(1))
    theirs, same = files.prepare(FILE, b"ours"), files.prepare(OTHER, b"data")
    table.publication.storage.create(FILE, b"theirs")
    table.publication.storage.create(OTHER, b"data")
    with pytest.raises(TimelineConflictError):
        term.publish([theirs])
    term.publish([same])
    assert [table.content(path) for path in (FILE, OTHER)] == [b"theirs", b"data"]


def test_after_a_revocation_and_after_its_file_was_deleted_a_ticket_makes_nothing(table: Table) -> None:
    term = table.begin()
    files = table.files(term.open_service(1))
    revoked, used = files.prepare(FILE, b"data"), files.prepare(OTHER, b"data")
    term.publish([used])
    for _ in range(2):
        assert term.revoke([revoked]) == {revoked: Fate.REVOKED}
    table.publication.storage.delete(OTHER)
    for _ in range(2):
        term.adopt(1, [FILE, OTHER])
        for ticket in (revoked, used):
            with pytest.raises(FencedOutError):
                term.publish([ticket])
        term = table.begin()
    assert [table.content(path) for path in (FILE, OTHER)] == [None, None]


def test_a_successor_takes_over_what_is_prepared_and_fences_the_former_tasks(table: Table) -> None:
    former = table.begin()
    old = table.files(former.open_service(7))
    ticket = old.prepare(FILE, b"data", b"note")
    growing = old.grow(OTHER)
    growing.write(b"half")
    elsewhere = table.files(former.open_service(77)).prepare("d3/base.parquet", b"other action")
    term = table.begin()
    new = table.files(term.open_service(7))
    assert new.prepared(FILE) == Prepared(ticket, b"note")
    assert term.adopt(7, [OTHER, FILE, "d9/never", elsewhere.path]) == [ticket]
    for late in (
        lambda: old.prepare("d3/late", b"late"),
        lambda: growing.finish(),
        lambda: old.grow("d3/late"),
    ):
        with pytest.raises(FencedOutError):
            late()
    with pytest.raises(FencedOutError):
        former.open_service(7)
    made_here = new.prepare(OTHER, b"whole")
    term.publish([ticket, made_here])
    assert [table.content(path) for path in (FILE, OTHER)] == [b"data", b"whole"]


def test_a_successor_goes_on_where_the_tickets_were_half_published(table: Table) -> None:
    former = table.begin()
    files = table.files(former.open_service(7))
    tickets = [files.prepare(path, path.encode()) for path in (FILE, OTHER)]
    former.publish(tickets[:1])
    term = table.begin()
    adopted = {ticket.path: ticket for ticket in (*tickets, *term.adopt(7, [FILE, OTHER]))}
    for _ in range(2):
        term.publish(list(adopted.values()))
        assert [table.content(path) for path in (FILE, OTHER)] == [FILE.encode(), OTHER.encode()]


def test_what_this_terms_tasks_prepared_is_adopted_as_well(table: Table) -> None:
    """A coordinator that lost the answer of a task need not have its files made again."""
    term = table.begin()
    files = table.files(term.open_service(7))
    tickets = [files.prepare(path, b"data") for path in (FILE, OTHER)]
    assert sorted(term.adopt(7, [OTHER, FILE, "d9/never"]), key=lambda ticket: ticket.path) == tickets
    term.publish(tickets)
    assert [table.content(path) for path in (FILE, OTHER, "d9/never")] == [b"data", b"data", None]


def test_adopting_one_action_changes_nothing_of_attempts_and_other_actions(table: Table) -> None:
    former = table.begin()
    of_attempt = table.attempt(former.open_attempt(7, 1)).prepare("d3/log", b"of an attempt")
    of_other = table.files(former.open_service(77)).prepare(OTHER, b"of another action")
    mine = table.files(former.open_service(7)).prepare(FILE, b"data")
    term = table.begin()
    of_open = table.attempt(term.open_attempt(8, 1)).prepare("d4/log", b"of an open attempt")
    others = [of_attempt, of_other, of_open]
    before = [table.content(ticket.path) for ticket in others]
    adopted = term.adopt(7, [FILE, *(ticket.path for ticket in others)])
    assert adopted == [mine]
    assert term.revoke(adopted) == {mine: Fate.REVOKED}
    assert [table.content(ticket.path) for ticket in others] == before
    assert term.adopt(77, [OTHER]) == [of_other]
    term.publish(others)
    assert [table.content(ticket.path) for ticket in others] == [
        b"of an attempt",
        b"of another action",
        b"of an open attempt",
    ]
    assert table.content(FILE) is None


def test_what_is_adopted_again_and_again_stays(table: Table) -> None:
    ticket = table.files(table.begin().open_service(7)).prepare(FILE, b"data")
    for _ in range(3):
        term = table.begin()
        term.remove_older(keep=[7])
        assert term.adopt(7, [FILE]) == [ticket]
        assert table.files(term.open_service(7)).prepare(FILE, b"data") == ticket
    term.publish([ticket])
    assert table.content(FILE) == b"data"


def test_what_older_terms_left_goes_except_what_open_actions_have(table: Table) -> None:
    former = table.begin()
    former.open_attempt(1, 1)
    kept = table.files(former.open_service(1)).prepare(FILE, b"data")
    table.files(former.open_service(2)).prepare(OTHER, b"data")
    term = table.begin()
    term.remove_older(keep=[1])
    term.remove_older(keep=[1])
    assert term.adopt(1, [FILE]) == [kept]
    term.publish([kept])
    assert table.content(FILE) == b"data"


def test_a_closed_action_prepares_and_publishes_nothing(table: Table) -> None:
    term = table.begin()
    files = table.files(term.open_service(1))
    tickets = [files.prepare(path, b"data") for path in (FILE, OTHER)]
    term.publish(tickets[:1])
    for _ in range(2):
        assert term.close_service(1, tickets) == Settled()
    with pytest.raises(FencedOutError):
        files.prepare("d3/late", b"late")
    with pytest.raises(FencedOutError):
        term.publish(tickets[1:])
    assert [table.content(path) for path in (FILE, OTHER)] == [b"data", None]
    assert term.adopt(1, [OTHER]) == []


def test_a_successor_closes_what_an_ended_term_left(table: Table) -> None:
    former = table.begin()
    ticket = table.files(former.open_service(1)).prepare(FILE, b"data")
    term = table.begin()
    term.close_service(1, [ticket])
    assert term.adopt(1, [FILE]) == []
    for each in (former, term):
        with pytest.raises(FencedOutError):
            each.publish([ticket])
    assert table.content(FILE) is None


def test_after_all_terms_were_ended_nothing_is_left_of_an_action(table: Table) -> None:
    former = table.begin("former")
    ticket = table.files(former.open_service(1)).prepare(FILE, b"data")
    table.publication.end_all_terms()
    term = table.begin("new")
    term.close_service(1)
    assert term.adopt(1, [FILE]) == []
    with pytest.raises(FencedOutError):
        term.publish([ticket])


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("operation", ["rename", "link"])
def test_a_publish_of_unknown_outcome_is_made_again(operation: str, when: When) -> None:
    storage = FaultyStorage(InMemoryStorage())
    table = over_folders(storage)
    term = table.begin()
    ticket = table.files(term.open_service(1)).prepare(FILE, b"data")
    storage.fail(operation, when=when)
    with pytest.raises(InjectedFaultError):
        term.publish([ticket])
    term.publish([ticket])
    assert table.content(FILE) == b"data"


def test_a_process_that_died_between_using_a_ticket_and_its_file_leaves_one_that_makes_nothing() -> None:
    storage = FaultyStorage(InMemoryStorage())
    table = over_folders(storage)
    former = table.begin()
    ticket = table.files(former.open_service(1)).prepare(FILE, b"data")
    storage.fail("link")
    with pytest.raises(InjectedFaultError):
        former.publish([ticket])
    term = table.begin()
    assert term.adopt(1, [FILE]) == [ticket]
    with pytest.raises(FencedOutError):
        term.publish([ticket])
    assert table.content(FILE) is None


def test_a_ticket_of_no_action_that_is_there_makes_nothing(table: Table) -> None:
    term = table.begin()
    term.open_service(1)
    with pytest.raises(FencedOutError):
        term.publish([Ticket(FILE, 4, "0" * 64, "service-1/unknown")])


@pytest.mark.parametrize("link", [1, 2, 3])
def test_files_that_are_published_together_sync_each_folder_once_and_go_on_where_they_stopped(
    link: int,
) -> None:
    storage = FaultyStorage(InMemoryStorage())
    table = over_folders(storage)
    term = table.begin()
    files = table.files(term.open_service(1))
    tickets = [files.prepare(f"d{number % 2}/{number}", b"%d" % number) for number in range(20)]
    before = dict(storage.calls)

    def calls(operation: str) -> int:
        return storage.calls.get(operation, 0) - before.get(operation, 0)

    storage.fail("link", nth=link)
    with pytest.raises(InjectedFaultError):
        term.publish(tickets)
    assert calls("rename") == 20, "every ticket is used up before the first file has its name"
    assert (calls("sync_dir"), calls("link")) == (1, link)
    term.publish(tickets)
    assert calls("sync_dir") == 4
    assert [table.content(ticket.path) for ticket in tickets] == [b"%d" % number for number in range(20)]
