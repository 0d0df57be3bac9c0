"""The publication port on a file system. `link()` makes a name at most once, with the whole content. Renaming
a staging folder away fences all writers that publish out of it, also one that was suspended in the middle of
a call.

- A file that an attempt prepares is linked at once: readers do not look at data files before their instant is
  completed. Its ticket is visible, so there is nothing left to publish.
- A file that a task of a service action prepares stays in the action's folder until it is published
  (`staged`).
- The content that a term prepares stays in memory (`held`) until it is published out of the term's folder.
  Many files that it prepares at once lie in that folder (`laid_out`).

Only the folders tell which attempts and terms may still make files (`folders`).
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tidemark.hudi_format.errors import AlreadyExistsError, FencedOutError
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication import folders
from tidemark.hudi_format.publication.file_times import file_time_ms
from tidemark.hudi_format.publication.folder_lock import (
    folder_lock,
    leave_lock_of_ended_terms,
    refuse_lock_of_others,
)
from tidemark.hudi_format.publication.held import HeldTickets, publish_held
from tidemark.hudi_format.publication.laid_out import LaidOutTickets, is_laid_out
from tidemark.hudi_format.publication.staged import StagedTickets, is_staged, staged_tickets
from tidemark.hudi_format.publication.table_lock import TableLock
from tidemark.hudi_format.publication.tickets import NO_TERM, Fate, Lease, Settled, TermId, Ticket
from tidemark.hudi_format.storage.base import FileContent, FolderStorage, Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT


class PosixAttempt:
    """`Attempt` on a file system: the token is the path of the attempt's staging folder."""

    def __init__(self, storage: FolderStorage, token: str) -> None:
        self._storage, self._folder = storage, token

    @property
    def storage(self) -> Storage:
        return self._storage

    def prepare(self, path: str, data: FileContent) -> Ticket:
        try:
            self._storage.publish(self._folder, path, data)
        except AlreadyExistsError:
            if self._storage.read(path) != bytes(data):
                raise
        return Ticket(path, len(data))

    def put_pending(self, path: str, data: FileContent) -> None:
        with contextlib.suppress(AlreadyExistsError):
            self._storage.publish(self._folder, path, data)


class PosixTerm:
    """`Term` on a file system: every file is published out of the term's folder."""

    def __init__(self, storage: FolderStorage, clock: Clock, ids: IdSource, term: TermId) -> None:
        self._storage, self._clock, self._ids, self._term = storage, clock, ids, term
        self._folder = folders.open_term(storage, term.offset)
        self._lock = folder_lock(storage, clock, ids, term, self._folder)
        self._held = HeldTickets(storage, f"term-{term.ledger}-{term.offset}")
        self._staged = StagedTickets(storage, self._folder)
        self._laid_out = LaidOutTickets(storage, term, ids)

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def id(self) -> TermId:
        return self._term

    @property
    def lock(self) -> TableLock:
        return self._lock

    def open_attempt(self, epoch: int, attempt: int) -> str:
        return folders.open_attempt(self._storage, self._term.offset, epoch, attempt, self._ids.uuid())

    def close_attempt(self, epoch: int, attempt: int, tickets: Sequence[Ticket] = ()) -> Settled:
        folders.close_attempt(self._storage, self._term.offset, epoch, attempt)
        self.revoke(tickets)
        return Settled()

    def open_service(self, service: int) -> str:
        return folders.open_service(self._storage, self._term.offset, service, self._ids.uuid())

    def close_service(self, service: int, tickets: Sequence[Ticket] = ()) -> Settled:
        self.revoke(tickets)
        folders.close_service(self._storage, self._term.offset, service)
        return Settled()

    def adopt(self, service: int, paths: Sequence[str]) -> list[Ticket]:
        folder = folders.adopt_service(self._storage, self._term.offset, service)
        return staged_tickets(self._storage, folder, paths)

    def prepare(self, path: str, data: FileContent, *, name_decides: bool = False) -> Ticket:
        return self._held.prepare(path, data, name_decides)

    def prepare_many(self, files: Sequence[tuple[str, FileContent]]) -> list[Ticket]:
        return self._laid_out.prepare(files)

    def publish(self, tickets: Sequence[Ticket], lease: Lease | None = None) -> None:
        for (of_tasks, laid_out), some in itertools.groupby(
            tickets, lambda t: (is_staged(t), is_laid_out(t))
        ):
            if of_tasks:
                self._staged.publish(list(some))
            elif laid_out:
                self._laid_out.publish(list(some))
            else:
                publish_held(self._held, list(some), self._make)

    def _make(self, path: str, data: bytes) -> None:
        self._storage.publish(self._folder, path, data)

    def revoke(self, tickets: Sequence[Ticket]) -> Mapping[Ticket, Fate]:
        held = [ticket for ticket in tickets if not is_staged(ticket) and not is_laid_out(ticket)]
        return {
            **self._held.revoke(held),
            **{ticket: self._staged.revoke(ticket) for ticket in tickets if is_staged(ticket)},
            **{ticket: self._laid_out.revoke(ticket) for ticket in tickets if is_laid_out(ticket)},
        }

    def put_pending(self, path: str, data: FileContent) -> None:
        with contextlib.suppress(AlreadyExistsError):
            self._storage.publish(self._folder, path, data)

    def keep_pending(self, path: str) -> None:
        self._storage.touch(path, create=False)

    def written_ms(self, path: str) -> int | None:
        return _written_ms(self._storage, path)

    def now_ms(self) -> int:
        return _now_ms(self._storage, self._folder)

    def replace(self, path: str, data: FileContent) -> None:
        self._storage.publish(self._folder, path, data, overwrite=True)

    def remove_older(self, keep: Collection[int] = ()) -> int:
        return folders.remove_ended(self._storage, self._term.offset, keep)

    def remove_dead_commands(self, is_over: Callable[[], bool]) -> int:
        if not folders.has_commands(self._storage):
            return 0
        now_ms = file_time_ms(self, self._clock)
        return folders.remove_dead_commands(self._storage, now_ms, is_over)


class PosixPublication:
    """`Publication` on a file system."""

    def __init__(self, storage: FolderStorage, clock: Clock, ids: IdSource) -> None:
        self._storage, self._clock, self._ids = storage, clock, ids

    @property
    def storage(self) -> Storage:
        return self._storage

    def open_term(self, term: TermId) -> PosixTerm:
        folders.end_older_terms(self._storage, term.offset)
        return PosixTerm(self._storage, self._clock, self._ids, term)

    def end_all_terms(self) -> None:
        refuse_lock_of_others(self._storage)
        folders.end_older_terms(self._storage, sys.maxsize)
        folders.remove_ended(self._storage, sys.maxsize)
        leave_lock_of_ended_terms(self._storage, self._ids)

    @contextlib.contextmanager
    def lock_of_no_term(self, ledger: str) -> Iterator[TableLock]:
        folder = join_path(ROOT, f"adopt-{self._ids.uuid()}")
        self._storage.make_dir(folder, exclusive=True)
        try:
            yield folder_lock(self._storage, self._clock, self._ids, TermId(NO_TERM.offset, ledger), folder)
        finally:
            self._storage.delete_tree(folder)

    def written_ms(self, path: str) -> int | None:
        return _written_ms(self._storage, path)

    def now_ms(self) -> int:
        # As a command of its own: what a process that is killed here leaves goes with those of commands.
        nonce = self._ids.uuid()
        self._storage.create(folders.command_beat(nonce), b"")
        try:
            return _now_ms(self._storage, folders.command_dir(nonce))
        finally:
            self._storage.delete_tree(folders.command_dir(nonce))


def _written_ms(storage: FolderStorage, path: str) -> int | None:
    info = storage.stat(path)
    return None if info is None else info.mtime_ms


def _now_ms(storage: FolderStorage, folder: str) -> int:
    path = join_path(folder, "now")
    storage.publish(folder, path, b"", overwrite=True)
    written_ms = _written_ms(storage, path)
    if written_ms is None:
        raise FencedOutError(f"{folder} is gone: another process ended this one")
    return written_ms
