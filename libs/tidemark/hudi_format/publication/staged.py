"""Files that the tasks of a service action prepare on a file system: nobody sees one before it is published.

::

    <the action's folder>/
        <key>-<nonce>           the content, written piece by piece
        <key>.ticket            the ticket of the task that finished first, and its note
        <key>-<nonce>.used      the same file once the ticket is used up: published, or about to be
        <key>-<nonce>.revoked   the same file once the ticket is revoked

``key`` follows from the path that the file is going to have. A ticket is used up *before* its file gets its
name: a process that dies in between leaves a ticket that publishes nothing, and the action is done again. The
other order could give a file back to a table from which another engine has deleted it (C4 in `port`).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    CorruptFileError,
    FencedOutError,
    FileMissingError,
    TimelineConflictError,
)
from tidemark.hudi_format.publication.tickets import Fate, Prepared, Ticket
from tidemark.hudi_format.storage.base import (
    FileContent,
    FolderStorage,
    Storage,
    join_path,
    name_of,
    parent_of,
)

_TICKET, _USED, _REVOKED = ".ticket", ".used", ".revoked"
_PIECE_BYTES: Final = 1 << 20
_NONCES_MAX: Final = 10_000
_counter = itertools.count()


class _Record(msgspec.Struct, frozen=True):
    ticket: Ticket
    note: bytes


class PosixServiceFiles:
    """`ServiceFiles` on a file system: the token is the path of the action's folder."""

    def __init__(self, storage: FolderStorage, token: str) -> None:
        self._storage, self._folder = storage, token

    @property
    def storage(self) -> Storage:
        return self._storage

    def prepare(self, path: str, data: FileContent, note: bytes = b"") -> Ticket:
        file = self.grow(path)
        try:
            file.write(data)
            return file.finish(note)
        finally:
            file.discard()

    def grow(self, path: str) -> PosixGrowingFile:
        return PosixGrowingFile(self._storage, self._folder, path)

    def prepared(self, path: str) -> Prepared | None:
        record = _read(self._storage, join_path(self._folder, _key(path) + _TICKET))
        return None if record is None else Prepared(record.ticket, record.note)


class PosixGrowingFile:
    """`GrowingFile`: a file in the action's folder, whose ticket is made last."""

    def __init__(self, storage: FolderStorage, folder: str, path: str) -> None:
        self._storage, self._folder, self._path = storage, folder, path
        self._digest, self._size = hashlib.sha256(), 0
        for _ in range(_NONCES_MAX):
            self._name = f"{_key(path)}-{os.getpid()}-{next(_counter)}"
            try:
                self._pieces = storage.write_in_pieces(folder, self._name)
                return
            except AlreadyExistsError:
                continue  # another process, in another container, has the same id
        raise AlreadyExistsError(f"{folder} is full of files of {path!r}")

    def write(self, data: FileContent) -> None:
        self._pieces.write(data)
        self._digest.update(data)
        self._size += len(data)

    def finish(self, note: bytes = b"") -> Ticket:
        self._pieces.close()
        handle = f"{name_of(self._folder)}/{self._name}"
        ticket = Ticket(self._path, self._size, self._digest.hexdigest(), handle)
        at = join_path(self._folder, _key(self._path) + _TICKET)
        try:
            self._storage.publish(self._folder, at, msgspec.json.encode(_Record(ticket, note)))
        except AlreadyExistsError:
            return self._of_the_first(at, ticket)
        return ticket

    def _of_the_first(self, at: str, ticket: Ticket) -> Ticket:
        first = _read(self._storage, at)
        if first is not None and first.ticket.handle == ticket.handle:
            return ticket  # an earlier call of ours made it, and then raised an error
        self._storage.delete(join_path(self._folder, self._name))
        if first is None or first.ticket.sha256 != ticket.sha256:
            raise AlreadyExistsError(f"{self._path!r} was prepared before, with another content")
        return first.ticket

    def discard(self) -> None:
        self._pieces.discard()


def is_staged(ticket: Ticket) -> bool:
    """Whether a task of a service action prepared the ticket's file."""
    return "/" in ticket.handle


def staged_tickets(storage: FolderStorage, folder: str, paths: Sequence[str]) -> list[Ticket]:
    """The tickets of the files that were prepared under these names, used ones included, revoked ones not."""
    wanted = {_key(path) for path in paths}
    found: dict[str, Ticket] = {}
    for name in _record_names(storage, folder):
        if name.partition(".")[0].partition("-")[0] not in wanted or name.endswith(_REVOKED):
            continue
        record = _read(storage, join_path(folder, name))
        if record is not None and record.ticket.path not in found:
            found[record.ticket.path] = record.ticket
    return [found[path] for path in paths if path in found]


class StagedTickets:
    """Publishes and revokes the tickets of service actions in one term. For one thread."""

    def __init__(self, storage: FolderStorage, term_dir: str) -> None:
        self._storage, self._term_dir = storage, term_dir
        # Handles of tickets that this process uses up: it may go on where a call of its own broke off.
        self._under_way: set[str] = set()

    def publish(self, tickets: Sequence[Ticket]) -> None:
        """Gives the tickets' files their names: all tickets are used up, and that is durable, before the
        first name is made. So a folder is synced once for many files. Raises `FencedOutError` when a ticket
        is used up or revoked, or its folder is gone; `TimelineConflictError` when a name holds another
        content. Files before it may have their names then, and a later call goes on with them.
        """
        opened = [ticket for ticket in tickets if self._is_to_be_made(ticket)]
        for folder in sorted({parent_of(self._staged(ticket)) for ticket in opened}):
            self._storage.sync_dir(folder)
        for ticket in opened:
            try:
                self._storage.link(self._staged(ticket), ticket.path, durable=False)
            except AlreadyExistsError:
                if not holds(self._storage, ticket):
                    raise TimelineConflictError(
                        f"{ticket.path} exists with another content: another writer made it"
                    ) from None
        for folder in sorted({parent_of(ticket.path) for ticket in opened}):
            self._storage.sync_dir(folder)
        self._under_way.difference_update(ticket.handle for ticket in opened)

    def _is_to_be_made(self, ticket: Ticket) -> bool:
        """Uses the ticket up. False: an earlier call has made its file. Raises `FencedOutError`."""
        if self._use_up(self._staged(ticket), ticket):
            return True
        if not holds(self._storage, ticket):
            raise FencedOutError(f"{ticket.path} must not be published: its ticket was revoked or used up")
        return False

    def _staged(self, ticket: Ticket) -> str:
        return join_path(self._term_dir, ticket.handle)

    def revoke(self, ticket: Ticket) -> Fate:
        """Uses the ticket up unless it is published; returns its final fate."""
        staged = self._staged(ticket)
        if self._is_open(staged, ticket):
            self._storage.rename(_of(staged) + _TICKET, staged + _REVOKED)
            return Fate.REVOKED
        if self._storage.exists(staged + _REVOKED):
            return Fate.REVOKED
        is_used = self._storage.exists(staged + _USED) and ticket.handle not in self._under_way
        self._under_way.discard(ticket.handle)
        return Fate.PUBLISHED if is_used or holds(self._storage, ticket) else Fate.REVOKED

    def _use_up(self, staged: str, ticket: Ticket) -> bool:
        """Whether the ticket was open, or this process had begun to use it. Not durable yet."""
        if self._is_open(staged, ticket):
            self._under_way.add(ticket.handle)
            self._storage.rename(_of(staged) + _TICKET, staged + _USED, durable=False)
        return ticket.handle in self._under_way

    def _is_open(self, staged: str, ticket: Ticket) -> bool:
        record = _read(self._storage, _of(staged) + _TICKET)
        return record is not None and record.ticket.handle == ticket.handle


def _of(staged: str) -> str:
    """The path of the key's own files, from that of one content."""
    return staged.rpartition("/")[0] + "/" + name_of(staged).partition("-")[0]


def _key(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:40]


def _record_names(storage: FolderStorage, folder: str) -> Iterator[str]:
    for info in storage.list(folder):
        if info.name.endswith((_TICKET, _USED, _REVOKED)) and not info.name.startswith("."):
            yield info.name


def _read(storage: Storage, path: str) -> _Record | None:
    try:
        return msgspec.json.decode(storage.read(path), type=_Record)
    except FileMissingError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is no ticket: {error}") from error


def holds(storage: Storage, ticket: Ticket) -> bool:
    """Whether the name holds the ticket's content. A large file is read in pieces."""
    info = storage.stat(ticket.path)
    if info is None or info.size != ticket.size:
        return False
    digest = hashlib.sha256()
    try:
        with storage.open_input(ticket.path) as source:
            while piece := source.read(_PIECE_BYTES):
                digest.update(piece)
    except FileMissingError:
        return False
    return digest.hexdigest() == ticket.sha256
