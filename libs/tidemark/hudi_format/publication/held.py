"""Tickets whose content stays in memory until it is published. That suits timeline files: they are small, and
the process that prepares one publishes it a moment later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
    FileMissingError,
    TimelineConflictError,
)
from tidemark.hudi_format.publication.tickets import Fate, Ticket
from tidemark.hudi_format.storage.base import FileContent, Storage

Make: TypeAlias = Callable[[str, bytes], None]
HELD_MAX: Final = 64
"""Far more than are open at a time. It bounds memory while a storage refuses writes: each try of a step
prepares its files again."""
_REVOKED_MAX: Final = 4_096


class HeldTickets:
    """The tickets of one term or process, with their contents. For one thread. ``owner`` is part of each
    handle, so that tickets of other owners are refused.
    """

    def __init__(self, storage: Storage, owner: str, held_max: int = HELD_MAX) -> None:
        self._storage, self._owner, self._held_max = storage, owner, held_max
        self._made = 0
        self._held: dict[str, bytes] = {}
        self._revoked: dict[str, None] = {}

    def prepare(self, path: str, data: FileContent, name_decides: bool) -> Ticket:
        """Keeps the content and returns its ticket. Beyond ``held_max`` the oldest ticket is revoked."""
        self._made += 1
        if len(self._held) >= self._held_max:
            self._forget(next(iter(self._held)))
        handle, content = f"{self._owner}:{self._made}", bytes(data)
        self._held[handle] = content
        digest = hashlib.sha256(content).hexdigest()
        return Ticket(path, len(content), digest, handle, name_decides)

    def content(self, ticket: Ticket) -> bytes | None:
        """The content to write; None when the ticket was used before and its file is there, so that nothing
        is left to do. Raises `FencedOutError` for a ticket that is revoked, used up, or another owner's.
        """
        held = self._held.get(ticket.handle)
        if held is not None:
            return held
        if self._is_used(ticket) and self._is_there(ticket):
            return None
        raise FencedOutError(f"{ticket.path} must not be published: its ticket was revoked or used up")

    def used(self, ticket: Ticket) -> None:
        """Notes that the ticket's file is there, and forgets the content."""
        self._held.pop(ticket.handle, None)

    def conflict(self, ticket: Ticket, content: bytes) -> None:
        """Called when the ticket's name is taken. Returns if the name decides or the file has the ticket's
        content; else raises TimelineConflictError.
        """
        if not ticket.name_decides and self._storage.read(ticket.path) != content:
            raise TimelineConflictError(
                f"{ticket.path} exists with another content: another writer made it"
            ) from None

    def revoke(self, tickets: Sequence[Ticket]) -> Mapping[Ticket, Fate]:
        """The fate of each ticket. Tickets that are visible or used are PUBLISHED; the content of the others
        is forgotten, and they are REVOKED.
        """
        fates: dict[Ticket, Fate] = {}
        for ticket in tickets:
            self._forget(ticket.handle)
            used = ticket.is_visible or self._is_used(ticket)
            fates[ticket] = Fate.PUBLISHED if used else Fate.REVOKED
        return fates

    def _forget(self, handle: str) -> None:
        if self._held.pop(handle, None) is not None:
            self._revoked[handle] = None
            if len(self._revoked) > _REVOKED_MAX:
                del self._revoked[next(iter(self._revoked))]

    def _is_used(self, ticket: Ticket) -> bool:
        if ticket.is_visible:
            return True
        owner, _, number = ticket.handle.rpartition(":")
        of_ours = owner == self._owner and number.isdigit() and 0 < int(number) <= self._made
        return of_ours and ticket.handle not in self._held and ticket.handle not in self._revoked

    def _is_there(self, ticket: Ticket) -> bool:
        try:
            content = self._storage.read(ticket.path)
        except FileMissingError:
            return False
        if ticket.name_decides:
            return True
        if ticket.is_visible:
            return len(content) == ticket.size
        return hashlib.sha256(content).hexdigest() == ticket.sha256


def publish_held(held: HeldTickets, tickets: Sequence[Ticket], make: Make) -> None:
    """Makes each ticket's file by ``make``, in order. ``make`` raises AlreadyExistsError when the name is
    taken.

    Raises `FencedOutError` for a ticket that is revoked or used up, TimelineConflictError when the name holds
    another content.
    """
    for ticket in tickets:
        content = held.content(ticket)
        if content is None:
            continue
        try:
            make(ticket.path, content)
        except AlreadyExistsError:
            held.conflict(ticket, content)
        held.used(ticket)
