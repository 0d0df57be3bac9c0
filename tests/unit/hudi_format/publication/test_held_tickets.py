"""What a term prepares is held until it is published: not for ever, and never more than a bounded number."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.publication.held import HELD_MAX, HeldTickets, publish_held
from tidemark.hudi_format.publication.tickets import Fate, Ticket
from tidemark.hudi_format.publication.unfenced import Unfenced


def test_tickets_that_nobody_publishes_are_forgotten_oldest_first() -> None:
    storage = InMemoryStorage()
    held = HeldTickets(storage, "term")
    tickets = [held.prepare(f"f{number}", b"x", name_decides=False) for number in range(HELD_MAX + 1)]
    with pytest.raises(FencedOutError):
        publish_held(held, tickets[:1], storage.create)
    publish_held(held, tickets[1:], storage.create)
    assert len(storage.walk("")) == HELD_MAX


def test_tickets_of_another_process_are_nobodys() -> None:
    storage = InMemoryStorage()
    here, there = HeldTickets(storage, "here"), HeldTickets(storage, "there")
    ticket = there.prepare("f", b"x", name_decides=False)
    with pytest.raises(FencedOutError):
        here.content(ticket)
    assert here.revoke([ticket]) == {ticket: Fate.REVOKED}
    assert there.content(ticket) == b"x"


def test_a_visible_ticket_needs_nothing_while_its_file_is_there() -> None:
    storage = InMemoryStorage()
    by, visible = Unfenced(storage), Ticket("f", 1)
    with pytest.raises(FencedOutError):
        by.publish([visible])
    storage.create("f", b"x")
    by.publish([visible])
    assert storage.read("f") == b"x"
