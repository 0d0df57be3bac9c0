"""The publication contract, C1 to C8 of `publication/port.py`: every implementation has to pass all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.memory_storage import InMemoryStorage
from testing.objects.publication import SETTLES_AFTER_MS
from testing.objects.store import ObjectStore
from tests.contract.publication_tables import MADE, Table, over_folders, over_objects
from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
    LockHeldError,
    LockLostError,
    TimelineConflictError,
)
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.publication.tickets import NO_TERM, Fate, NotBefore, Settled, TermId, Ticket

FILE, COMPLETED = "d1/file.parquet", ".hoodie/timeline/1_2.commit"
DIGEST = hashlib.sha256(b"data").hexdigest()


@pytest.fixture(params=list(MADE))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return MADE[request.param](tmp_path)


# ---------------------------------------------------------------- C1, C2: prepare, publish


def test_what_a_term_prepares_is_seen_when_it_is_published(table: Table) -> None:
    term = table.begin()
    ticket = term.prepare(COMPLETED, b"done")
    assert table.content(COMPLETED) is None
    for _ in range(2):
        term.publish([ticket])
        assert table.content(COMPLETED) == b"done"


def test_what_an_attempt_prepares_has_its_content_once_it_is_published(table: Table) -> None:
    term = table.begin()
    attempt = table.attempt(term.open_attempt(1, 1))
    ticket = attempt.prepare(FILE, b"data")
    assert (ticket.path, ticket.size) == (FILE, 4)
    assert (table.content(FILE) is not None) == ticket.is_visible
    assert ticket.is_visible or ticket.sha256 == DIGEST
    again = attempt.prepare(FILE, b"data")
    for _ in range(2):
        term.publish([ticket])
        assert table.content(FILE) == b"data"
    term.publish([again])
    assert table.content(FILE) == b"data"


def test_a_name_that_holds_something_else_is_a_conflict_and_stays(table: Table) -> None:
    term = table.begin()
    ticket = term.prepare(FILE, b"ours")
    table.publication.storage.create(FILE, b"theirs")
    with pytest.raises(TimelineConflictError):
        term.publish([ticket])
    assert table.content(FILE) == b"theirs"


def test_a_file_that_another_writer_made_with_the_same_content_counts(table: Table) -> None:
    term = table.begin()
    ticket = term.prepare(FILE, b"data")
    table.publication.storage.create(FILE, b"data")
    term.publish([ticket])
    assert table.content(FILE) == b"data"


def test_where_the_name_decides_any_content_counts(table: Table) -> None:
    term = table.begin()
    ticket = term.prepare(COMPLETED, b"of this version", name_decides=True)
    table.publication.storage.create(COMPLETED, b"of another version")
    for _ in range(2):
        term.publish([ticket])
    assert table.content(COMPLETED) == b"of another version"


def test_two_contents_under_one_name_never_become_two_files(table: Table) -> None:
    term = table.begin()
    attempt = table.attempt(term.open_attempt(1, 1))
    first = attempt.prepare(FILE, b"first")
    try:
        other = attempt.prepare(FILE, b"other")
    except AlreadyExistsError:
        assert first.is_visible
        return
    term.publish([first])
    with pytest.raises(TimelineConflictError):
        term.publish([other])
    assert table.content(FILE) == b"first"


# ---------------------------------------------------------------- C3, C4: revoke, used tickets


def test_after_a_revocation_nobody_publishes(table: Table) -> None:
    term = table.begin()
    ticket = term.prepare(COMPLETED, b"done")
    for _ in range(2):
        assert term.revoke([ticket]) == {ticket: Fate.REVOKED}
        with pytest.raises(FencedOutError):
            term.publish([ticket])
    assert table.content(COMPLETED) is None


def test_what_is_published_cannot_be_revoked(table: Table) -> None:
    term = table.begin()
    attempt = table.attempt(term.open_attempt(1, 1))
    tickets = [attempt.prepare(FILE, b"data"), term.prepare(COMPLETED, b"done")]
    term.publish(tickets)
    assert term.revoke(tickets) == dict.fromkeys(tickets, Fate.PUBLISHED)
    assert (table.content(FILE), table.content(COMPLETED)) == (b"data", b"done")


def test_a_prepared_file_that_nobody_sees_is_revoked_for_good(table: Table) -> None:
    term = table.begin()
    ticket = table.attempt(term.open_attempt(1, 1)).prepare(FILE, b"data")
    fate = term.revoke([ticket])[ticket]
    assert fate is (Fate.PUBLISHED if ticket.is_visible else Fate.REVOKED)
    if fate is Fate.REVOKED:
        with pytest.raises(FencedOutError):
            table.begin().publish([ticket])
        assert table.content(FILE) is None


def test_a_used_ticket_makes_no_file_again_when_its_file_was_deleted(table: Table) -> None:
    term = table.begin()
    attempt = table.attempt(term.open_attempt(1, 1))
    tickets = [attempt.prepare(FILE, b"data"), term.prepare(COMPLETED, b"done", name_decides=True)]
    term.publish(tickets)
    for ticket in tickets:
        table.publication.storage.delete(ticket.path)
        with pytest.raises(FencedOutError):
            term.publish([ticket])
        assert table.content(ticket.path) is None


def test_of_several_tickets_of_a_name_one_publishes(table: Table) -> None:
    term = table.begin()
    tickets = [term.prepare(COMPLETED, b"%d" % number) for number in range(3)]
    term.publish([tickets[1]])
    for other in (tickets[0], tickets[2]):
        with pytest.raises(TimelineConflictError):
            term.publish([other])
    assert table.content(COMPLETED) == b"1"


# ---------------------------------------------------------------- terms and attempts that are over


def test_a_term_that_is_over_makes_nothing(table: Table) -> None:
    former = table.begin()
    ticket = former.prepare(COMPLETED, b"late")
    table.begin()
    for late in (
        lambda: former.publish([ticket]),
        lambda: former.publish([former.prepare(COMPLETED, b"late")]),
        lambda: former.put_pending(".hoodie/.heartbeat/1", b""),
        lambda: former.replace(".hoodie/document", b"late"),
        lambda: former.open_attempt(1, 1),
        lambda: former.lock.acquire(0),
    ):
        with pytest.raises(FencedOutError):
            late()
    assert [table.content(path) for path in (COMPLETED, ".hoodie/.heartbeat/1", ".hoodie/document")] == [
        None
    ] * 3
    assert table.content(LOCK_PATH) is None


def test_a_term_is_begun_once(table: Table) -> None:
    table.begin()
    with pytest.raises(AlreadyExistsError):
        table.publication.open_term(TermId(1, "l"))


def term_of_lock(table: Table) -> int | None:
    """As a process sees it that asks for the first time."""
    with table.publication.lock_of_no_term("l") as lock:
        holder = lock.holder()
    return None if holder is None else holder.term


def test_after_all_terms_were_ended_those_of_another_ledger_begin_at_small_numbers(table: Table) -> None:
    table.terms = 900
    former = table.begin("former")
    former.lock.acquire(0)
    table.publication.end_all_terms()
    with pytest.raises(LockLostError):
        former.lock.check()
    assert term_of_lock(table) == NO_TERM.offset, "no other writer finds it free"
    table.terms = 1
    term = table.begin("new")
    term.lock.acquire(0)
    assert term_of_lock(table) == 2
    term.publish([term.prepare(COMPLETED, b"done")], term.lock.lease())
    with pytest.raises((FencedOutError, LockLostError)):
        former.publish([former.prepare(".hoodie/timeline/0_1.commit", b"late")], None)


def test_an_attempt_that_was_closed_gets_no_files(table: Table) -> None:
    term = table.begin()
    attempt = table.attempt(term.open_attempt(1, 1))
    ticket = attempt.prepare(FILE, b"data")
    table.close(term, 1, 1)
    table.close(term, 1, 1)
    with pytest.raises(FencedOutError):
        attempt.prepare("d1/late", b"late")
    with pytest.raises(FencedOutError):
        attempt.put_pending(".hoodie/.temp/1/MARKERS0", b"late")
    if not ticket.is_visible:
        with pytest.raises(FencedOutError):
            term.publish([ticket])
        assert table.content(FILE) is None
    assert table.content("d1/late") is None


def test_an_attempt_is_opened_again_by_a_successor_for_its_own_writers(table: Table) -> None:
    former = table.begin()
    old = former.open_attempt(1, 1)
    term = table.begin()
    new = term.open_attempt(1, 1)
    assert new == term.open_attempt(1, 1) != old
    with pytest.raises(FencedOutError):
        table.attempt(old).prepare("d1/late", b"late")
    term.publish([table.attempt(new).prepare(FILE, b"data")])
    assert table.content(FILE) == b"data"


# ---------------------------------------------------------------- C6, C7: closing, listing, deleting


def test_an_attempt_is_settled_after_the_time_that_was_said(table: Table) -> None:
    term = table.begin()
    answers = []
    for epoch in range(1, 7):
        term.open_attempt(epoch, 1)
        answers.append(term.close_attempt(epoch, 1))
    assert all(isinstance(each, Settled | NotBefore) for each in answers)
    waits_ms = [each.ms - table.clock.now_ms() for each in answers if isinstance(each, NotBefore)]
    assert all(0 < wait_ms <= SETTLES_AFTER_MS for wait_ms in waits_ms)
    table.clock.advance(SETTLES_AFTER_MS / 1000)
    assert all(isinstance(term.close_attempt(epoch, 1), Settled) for epoch in range(1, 7))


def test_a_listing_shows_what_was_published_before_and_deletions_are_repeatable(table: Table) -> None:
    term = table.begin()
    names = [f".hoodie/timeline/{number}.commit" for number in range(5)]
    term.publish([term.prepare(name, b"") for name in names])
    storage = table.publication.storage
    assert [info.path for info in storage.list(".hoodie/timeline")] == names
    assert [storage.delete(names[0]) for _ in range(2)] == [True, False]
    assert [info.path for info in storage.walk(".hoodie/timeline")] == names[1:]


# ---------------------------------------------------------------- pending files, documents, the lock


def test_a_pending_file_stays_as_it_was_made_and_tells_when_it_was_kept(table: Table) -> None:
    term, beat = table.begin(), ".hoodie/.heartbeat/1"
    term.keep_pending(beat)
    assert table.publication.written_ms(beat) is None
    assert term.written_ms(beat) is None
    term.put_pending(beat, b"")
    term.put_pending(beat, b"other")
    first = table.publication.written_ms(beat)
    assert term.written_ms(beat) == first
    assert (table.content(beat), first is not None) == (b"", True)
    term.keep_pending(beat)
    assert (table.publication.written_ms(beat) or 0) >= (first or 0)


def test_the_storage_tells_its_own_time(table: Table) -> None:
    """By which the age of a pending file is told, whatever clocks there are elsewhere."""
    term, beat = table.begin(), ".hoodie/.heartbeat/1"
    term.put_pending(beat, b"")
    before = term.written_ms(beat) or 0
    table.clock.advance(3_600.0)
    now_ms = [term.now_ms(), table.publication.now_ms(), term.now_ms()]
    assert before <= now_ms[0] <= now_ms[1] <= now_ms[2]
    term.keep_pending(beat)
    assert now_ms[2] <= (term.written_ms(beat) or 0)
    table.begin()
    with pytest.raises(FencedOutError):
        term.now_ms()
    table.publication.now_ms()


def test_a_document_is_replaced(table: Table) -> None:
    term = table.begin()
    for content in (b"1", b"22"):
        term.replace(".hoodie/document", content)
        assert table.content(".hoodie/document") == content


def test_a_lease_is_given_while_the_lock_is_held(table: Table) -> None:
    term = table.begin()
    with pytest.raises(LockLostError):
        term.lock.lease()
    term.lock.acquire(0)
    term.publish([term.prepare(COMPLETED, b"done")], term.lock.lease())
    term.lock.release()
    assert term.lock.holder() is None
    with pytest.raises(LockLostError):
        term.lock.lease()
    assert table.content(COMPLETED) == b"done"


def test_another_writers_lock_is_waited_for_and_an_older_terms_is_taken_over(table: Table) -> None:
    former = table.begin()
    former.lock.acquire(0)
    term = table.begin()
    term.lock.acquire(0)
    with pytest.raises(LockLostError):
        former.lock.check()
    term.lock.release()
    table.publication.storage.create(LOCK_PATH, b"")
    with pytest.raises(LockHeldError):
        term.lock.acquire(200)
    with pytest.raises(LockHeldError):
        table.publication.end_all_terms()
    table.publication.storage.delete(LOCK_PATH)
    table.begin().lock.acquire(0)


def test_a_command_without_a_term_takes_over_what_ended_terms_left(table: Table) -> None:
    table.begin("l").lock.acquire(0)
    with table.publication.lock_of_no_term("l") as lock:
        with pytest.raises(LockLostError):
            lock.acquire(0)
        for _ in range(2):
            table.publication.end_all_terms()
            lock.acquire(0)
            lock.check()
            lock.release()
            table.begin("l").lock.acquire(0)


def test_a_command_without_a_term_takes_the_free_lock(table: Table) -> None:
    with table.publication.lock_of_no_term("l") as lock:
        lock.acquire(0)
        assert lock.holder() is not None
        lock.release()
    assert table.content(LOCK_PATH) is None


@pytest.mark.parametrize("when", list(When))
def test_after_an_error_of_unknown_outcome_a_call_is_made_again(when: When) -> None:
    storage = FaultyStorage(InMemoryStorage())
    table = over_folders(storage)
    term = table.begin()
    attempt = table.attempt(term.open_attempt(1, 1))
    ticket = term.prepare(COMPLETED, b"done")
    for repeated in (
        lambda: attempt.prepare(FILE, b"data"),
        lambda: term.publish([ticket]),
        lambda: term.put_pending(".hoodie/.heartbeat/1", b""),
        lambda: term.replace(".hoodie/document", b"1"),
    ):
        storage.fail("publish", when=when)
        with pytest.raises(InjectedFaultError):
            repeated()
        repeated()
    assert [table.content(path) for path in (FILE, COMPLETED, ".hoodie/document")] == [b"data", b"done", b"1"]


def test_a_writer_that_sleeps_between_look_and_upload_makes_what_nobody_publishes() -> None:
    """As an object store has it: nothing fences the upload, and no decision names it."""
    table = over_objects(Path())
    term = table.begin()
    token = term.open_attempt(1, 1)
    store = table.publication.storage
    assert isinstance(store, ObjectStore)
    late = store.upload(FILE, b"late", token)
    table.close(term, 1, 1)
    with pytest.raises(FencedOutError):
        term.publish([Ticket(FILE, 4, DIGEST, late)])
    after = store.upload(FILE, b"later", token)
    assert table.content(FILE) is None
    assert term.revoke([Ticket(FILE, 5, DIGEST, after)]) == {Ticket(FILE, 5, DIGEST, after): Fate.REVOKED}
