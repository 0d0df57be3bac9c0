"""Many files that a term prepares at once on a file system. Their contents are durable in the term's folder
before they are published, so publishing takes a link for each name and one sync for each folder. It is for
files that appear under the table's lock: without this each of them would be written and synced there.

::

    <the term's folder>/
        laid-<number>/      the contents of one call of `prepare`
            0, 1, 2, …      a content; up to `NAMES_MAX` files that are equal become names of one file

Example: 1 000 new partitions of a record index with 16 groups each begin with 16 000 equal files of 80 bytes.
They are 16 files here, and 16 000 links when they are published. Nobody writes into such a file later: each
write of the table makes a new one.

Tickets are of use in one process. A link is made by the path of the term's folder, so nothing is published
once a successor has renamed that away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidemark.hudi_format.errors import FencedOutError, TimelineConflictError
from tidemark.hudi_format.ports import IdSource
from tidemark.hudi_format.publication import folders
from tidemark.hudi_format.publication.staged import holds
from tidemark.hudi_format.publication.tickets import Fate, TermId, Ticket
from tidemark.hudi_format.storage.base import FileContent, FolderStorage, join_path, parent_of

NAMES_MAX: Final = 1_000
"""Far below what file systems allow: ext4 takes 65 000 names of one file."""
_LAID = "laid-"
_THREADS: Final = 16
"""A disk syncs several files at a time in little more than the time of one."""
_FEW: Final = 32


class LaidOutTickets:
    """The tickets of one term; those of the last call of `prepare` are open. For one thread."""

    def __init__(self, storage: FolderStorage, term: TermId, ids: IdSource) -> None:
        self._storage, self._term, self._ids = storage, term, ids
        self._calls = 0
        self._folder: str | None = None
        self._open: dict[str, str] = {}
        self._published: set[str] = set()

    def prepare(self, files: Sequence[tuple[str, FileContent]]) -> list[Ticket]:
        """Lays the contents out, durably, and returns the files' tickets, in order. Revokes what an earlier
        call prepared and nobody published. Raises `FencedOutError` when the term is over.
        """
        self.forget()
        self._published.clear()
        self._calls += 1
        self._folder = folders.open_laid_out(
            self._storage, self._term.offset, f"{_LAID}{self._calls}", self._ids.uuid()
        )
        contents, places = _placed(files)
        self._write(contents)
        digests = [hashlib.sha256(content).hexdigest() for content in contents]
        tickets = []
        for number, ((path, data), place) in enumerate(zip(files, places, strict=True)):
            handle = f"{_LAID}{self._term.ledger}-{self._term.offset}-{self._calls}:{number}"
            tickets.append(Ticket(path, len(data), digests[place], handle))
            self._open[handle] = join_path(self._folder, str(place))
        return tickets

    def _write(self, contents: Sequence[bytes]) -> None:
        if len(contents) <= _FEW:
            for number, content in enumerate(contents):
                self._write_one(number, content)
            return
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lay-out") as pool:
            for _ in pool.map(self._write_one, range(len(contents)), contents):
                pass

    def _write_one(self, number: int, content: bytes) -> None:
        assert self._folder is not None
        pieces = self._storage.write_in_pieces(self._folder, str(number))
        try:
            pieces.write(content)
            pieces.close()
        finally:
            pieces.discard()

    def publish(self, tickets: Sequence[Ticket]) -> None:
        """Gives the tickets' files their names, durably. Raises `FencedOutError` when a ticket is revoked or
        used up, or the term is over; `TimelineConflictError` when a name holds another content. Files before
        and behind it may have their names then.
        """
        opened = [ticket for ticket in tickets if ticket.handle in self._open]
        for ticket in tickets:
            if ticket.handle not in self._open and not self._is_done(ticket):
                raise FencedOutError(
                    f"{ticket.path} must not be published: its ticket was revoked or used up"
                )
        links = [(self._open[ticket.handle], ticket.path) for ticket in opened]
        taken = set(self._storage.link_all(links))
        for ticket in opened:
            if ticket.path in taken and not holds(self._storage, ticket):
                raise TimelineConflictError(
                    f"{ticket.path} exists with another content: another writer made it"
                )
        for folder in sorted({parent_of(ticket.path) for ticket in tickets}):
            self._storage.sync_dir(folder)
        for ticket in opened:
            del self._open[ticket.handle]
            self._published.add(ticket.handle)

    def _is_done(self, ticket: Ticket) -> bool:
        return ticket.handle in self._published and holds(self._storage, ticket)

    def revoke(self, ticket: Ticket) -> Fate:
        """Revokes the ticket unless it is published; returns its final fate. The last ticket takes the
        contents with it.
        """
        self._open.pop(ticket.handle, None)
        if not self._open:
            self.forget()
        return Fate.PUBLISHED if ticket.handle in self._published else Fate.REVOKED

    def forget(self) -> None:
        """Revokes all tickets that are open, and deletes the contents."""
        self._open.clear()
        folder, self._folder = self._folder, None
        if folder is not None:
            self._storage.delete_tree(folder)


def is_laid_out(ticket: Ticket) -> bool:
    """Whether the ticket is one of `LaidOutTickets.prepare`."""
    return ticket.handle.startswith(_LAID)


def _placed(files: Sequence[tuple[str, FileContent]]) -> tuple[list[bytes], list[int]]:
    """The contents to be written, and of each file the number of its content."""
    contents: list[bytes] = []
    places: list[int] = []
    of_content: dict[bytes, tuple[int, int]] = {}
    for _, data in files:
        content = bytes(data)
        place, names = of_content.get(content, (-1, NAMES_MAX))
        if names == NAMES_MAX:
            place, names = len(contents), 0
            contents.append(content)
        of_content[content] = (place, names + 1)
        places.append(place)
    return contents, places
