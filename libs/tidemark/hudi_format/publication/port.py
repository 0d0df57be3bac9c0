"""The publication port: makes the files that take effect for readers. That takes two steps, `prepare` and
`publish`; in between a file can be revoked. Publishing and revoking are final, and `revoke` tells which
happened.

====================== ============================================== =======================================
                       a file system (`posix.py`)                     a store without rename
====================== ============================================== =======================================
prepare, in an attempt the file is linked, its ticket says so         an upload that nobody sees
prepare, in a term     the content stays in memory                    an upload that nobody sees
prepare_many           files in the term's folder                     uploads that nobody sees
prepare, in a service  a file in the action's folder                  an upload that nobody sees
publish                `link()` out of the term's folder              an upload completed, if the name is free
revoke                 the content is forgotten                       the upload is aborted
the end of a term      its folder is renamed away                     the term's object names a later one
====================== ============================================== =======================================

What callers may assume, whichever implementation (tests/contract/test_publication.py runs over all of them):

C1  `prepare` makes nothing that takes effect. A data file may be visible already, but readers do not look at
    it before its instant is completed.
C2  When `publish` returns, each name holds exactly its ticket's content. Where the name decides (the
    completed file of a timeline) any content will do, because another version of Tidemark may have made the
    file. `publish` may be called again with the same tickets: a file that the same ticket made is no
    conflict.
C3  The answers of `revoke` are final: after REVOKED no call ever makes the name by that ticket.
C4  A name may have several tickets; at most one of them makes the file while the name is there. A ticket
    makes its file once: if the file is deleted afterwards, the ticket does not make it again.
C5  Callers publish tickets of attempts only if an entry of the decisions topic names them, itself or through
    the report that it names. So a coordinator that was suspended can publish what was decided, and nothing
    else.
C6  `close_attempt` may answer `NotBefore`. Until it answers `Settled` the instant stays pending, with its
    heartbeat, and is not rolled back.
C7  A listing shows every file whose making was acknowledged before the listing began. Deletions can be
    repeated.
C8  No caller sees staging folders or renames. Of times of files callers see those of pending files and of
    instants (`written_ms`), and compare them with each other, and with `now_ms`.

All methods may raise OSError. Then the caller does not know whether the call took effect, and makes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tidemark.hudi_format.publication.table_lock import TableLock
from tidemark.hudi_format.publication.tickets import (
    Fate,
    Lease,
    NotBefore,
    Prepared,
    Settled,
    TermId,
    Ticket,
)
from tidemark.hudi_format.storage.base import FileContent, Storage


class Attempt(Protocol):
    """The right of one attempt's writers to make files. Spark's executors use it."""

    @property
    def storage(self) -> Storage:
        """The table's folder, for reading."""
        ...

    def prepare(self, path: str, data: FileContent) -> Ticket:
        """Prepares a file with this content and returns its ticket; repeatable. ``path`` is relative to the
        table's base. Raises `FencedOutError` when the attempt or its term is over, `AlreadyExistsError` when
        another content is visible under that name.
        """
        ...

    def put_pending(self, path: str, data: FileContent) -> None:
        """Makes a file that readers of the table never look at: a marker. A file that is there stays as it
        is. Raises `FencedOutError` when the attempt or its term is over.
        """
        ...


class GrowingFile(Protocol):
    """A file of a service action, written piece by piece. For one thread."""

    def write(self, data: FileContent) -> None:
        """Appends to the file."""
        ...

    def finish(self, note: bytes = b"") -> Ticket:
        """Prepares the file and returns its ticket; if another task has prepared the same content under this
        name before, that task's ticket. ``note``: a few bytes that `ServiceFiles.prepared` gives back.

        Raises `FencedOutError` when the action or its term is over, `AlreadyExistsError` when another content
        was prepared under this name.
        """
        ...

    def discard(self) -> None:
        """Forgets what was written. Does nothing after `finish`."""
        ...


class ServiceFiles(Protocol):
    """The right of one service action's tasks to prepare files. No file is visible before it is published:
    readers drop log files behind a base file of an instant that is on no timeline.
    """

    @property
    def storage(self) -> Storage:
        """The table's folder, for reading."""
        ...

    def prepare(self, path: str, data: FileContent, note: bytes = b"") -> Ticket:
        """Prepares a small file in one call. Returns its ticket and raises as `GrowingFile.finish`."""
        ...

    def grow(self, path: str) -> GrowingFile:
        """Begins a file with this path, relative to the table's base. Raises `FencedOutError`."""
        ...

    def prepared(self, path: str) -> Prepared | None:
        """What a task has prepared under this name; None when none has finished."""
        ...


class Publisher(Protocol):
    """The right to make files of timelines."""

    @property
    def storage(self) -> Storage:
        """The table's folder, for reading and deleting."""
        ...

    def prepare(self, path: str, data: FileContent, *, name_decides: bool = False) -> Ticket:
        """A ticket for a file with this content. It is of use in this process only: a successor prepares its
        own. ``name_decides``: whatever file has the name counts as this one.
        """
        ...

    def prepare_many(self, files: Sequence[tuple[str, FileContent]]) -> list[Ticket]:
        """Tickets for files with these paths and contents, in order. It is for many files that are going to
        be published under the table's lock: what takes long is done here. They are of use in this process
        only, and the next call revokes those that are not published.
        """
        ...

    def publish(self, tickets: Sequence[Ticket], lease: Lease | None = None) -> None:
        """Makes the tickets' files, in order. ``lease``: of the table's lock, for files that must not appear
        without it.

        Raises `FencedOutError` when a ticket is revoked or used up, or the term is over;
        `TimelineConflictError` when the name holds another content; `LockLostError` when the store finds that
        the lock of the lease is not held any more.
        """
        ...

    def put_pending(self, path: str, data: FileContent) -> None:
        """Makes a file that readers of the table never look at: a heartbeat. A file that is there stays as it
        is. Raises `FencedOutError` when the term is over.
        """
        ...


class Term(Publisher, Protocol):
    """A coordinator's right to make files. It ends when a later coordinator begins a term."""

    @property
    def id(self) -> TermId:
        """The offset of the coordinator's claim, and its ledger."""
        ...

    @property
    def lock(self) -> TableLock:
        """The table's lock, as this term holds it."""
        ...

    def open_attempt(self, epoch: int, attempt: int) -> str:
        """Opens the attempt for its writers; returns its token, for `locate.attempt_of`. Repeatable. Raises
        `FencedOutError` when the term is over.
        """
        ...

    def close_attempt(self, epoch: int, attempt: int, tickets: Sequence[Ticket] = ()) -> Settled | NotBefore:
        """Ends the attempt, whichever term opened it, and revokes the ``tickets`` of it that the caller
        knows. `Settled`: nothing of it will be published any more. `NotBefore`: ask again then (C6).
        """
        ...

    def open_service(self, service: int) -> str:
        """Opens a service action for its tasks; returns its token, for `locate.service_files_of`. Repeatable.

        Files that tasks prepared for the action in terms that have ended stay prepared; those tasks prepare
        no more. Raises `FencedOutError` when the term is over.
        """
        ...

    def close_service(self, service: int, tickets: Sequence[Ticket] = ()) -> Settled | NotBefore:
        """Ends a service action, whichever term opened it, and deletes what is prepared for it and not
        published. As `close_attempt`.
        """
        ...

    def adopt(self, service: int, paths: Sequence[str]) -> list[Ticket]:
        """Tickets for the files that tasks prepared under these names for the action, in whichever term, so
        that nobody makes them again; the tickets are published or revoked in this term. A ticket that is used
        up is among them.
        """
        ...

    def revoke(self, tickets: Sequence[Ticket]) -> Mapping[Ticket, Fate]:
        """Revokes the tickets that are not published; returns the final fate of each."""
        ...

    def keep_pending(self, path: str) -> None:
        """Sets the time of a pending file to now. Never makes the file."""
        ...

    def now_ms(self) -> int:
        """Now, by the clock of `written_ms`: the time of a file that is written for this. Raises
        `FencedOutError` when the term is over.
        """
        ...

    def written_ms(self, path: str) -> int | None:
        """When a file or folder was last written or kept, in milliseconds since the Unix epoch by the
        storage's clock; None when it is not there.
        """
        ...

    def replace(self, path: str, data: FileContent) -> None:
        """Writes a document of Tidemark's own, in place of one that is there; `hoodie.properties` under the
        table's lock. Raises `FencedOutError` when the term is over.
        """
        ...

    def remove_older(self, keep: Collection[int] = ()) -> int:
        """Deletes what terms before this one left behind for publishing, except what is prepared for the
        service actions ``keep``; returns the number of files.
        """
        ...

    def remove_dead_commands(self, is_over: Callable[[], bool]) -> int:
        """Deletes what killed commands beside the coordinator prepared; returns the number of files.
        ``is_over`` is asked after each file: what is left then is for the next call. Raises `FencedOutError`
        when the term is over, and OSError for what cannot be deleted.
        """
        ...


class Command(Protocol):
    """What a command may do that changes a table while a coordinator may serve it. For one thread."""

    lock: TableLock
    """The table's lock. A coordinator that holds it is waited for."""
    storage: Storage
    """The table's folder. A file is made or replaced through it only while nobody has ended the command, else
    it raises `FencedOutError`.
    """

    def stage(self, path: str, data: FileContent) -> None:
        """Prepares a file that nobody sees, in place of one that was prepared under this path. Raises
        `FencedOutError`.
        """
        ...

    def discard(self, folder: str) -> None:
        """Forgets what was staged below this folder."""
        ...

    def put(self, folder: str) -> None:
        """Puts what is staged below the folder in the folder's place, in one step. Hold the lock. Raises
        `FencedOutError`.
        """
        ...

    def take_away(self, folder: str) -> None:
        """Takes the folder out of the table in one step; does nothing where there is none. Hold the lock.
        Raises `FencedOutError`.
        """
        ...

    def beat(self) -> None:
        """Gives a sign of life: who gives none for long is ended, the sooner while it holds the lock. Raises
        `FencedOutError` once that has happened.
        """
        ...


class Publication(Protocol):
    """The publication port of one table, for one process."""

    @property
    def storage(self) -> Storage:
        """The table's folder."""
        ...

    def open_term(self, term: TermId) -> Term:
        """Ends all older terms, then begins this one. Raises `AlreadyExistsError` when this term was begun
        before.
        """
        ...

    def end_all_terms(self) -> None:
        """Ends the terms of all coordinators so far. It is for the beginning of a new ledger. If one of them
        holds the lock, that stays taken until the next term or command takes it over: no other writer finds
        it free. Raises `LockHeldError` when another writer holds the lock.
        """
        ...

    def lock_of_no_term(self, ledger: str) -> AbstractContextManager[TableLock]:
        """The table's lock, for a command that works without a term while no coordinator serves the table."""
        ...

    def written_ms(self, path: str) -> int | None:
        """When a pending file was last written or kept, in milliseconds since the Unix epoch by the storage's
        clock; None when it is not there.
        """
        ...

    def now_ms(self) -> int:
        """Now, by the clock of `written_ms`: the time of a file that is written for this."""
        ...
