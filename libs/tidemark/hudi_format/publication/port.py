"""The publication port: a file that counts is made in two steps, `prepare` and `publish`. Between them it can
be revoked. Which of the two happened is final, and can be asked.

====================== ============================================== =======================================
                       a file system (`posix.py`)                     a store without rename
====================== ============================================== =======================================
prepare, in an attempt the file is linked, its ticket says so         an upload that nobody sees
prepare, in a term     the content is held                            an upload that nobody sees
publish                `link()` out of the term's folder              an upload completed, if the name is free
revoke                 what is held is forgotten                      the upload is aborted
the end of a term      its folder is renamed away                     the term's object names a later one
====================== ============================================== =======================================

What callers may assume, whichever implementation (tests/contract/test_publication.py runs over all of them):

C1  `prepare` makes nothing that counts. A data file may be visible already: readers do not look at it before
    its instant is completed.
C2  When `publish` returns, each name holds exactly its ticket's content; where the name decides (a completed
    file of a timeline) any content will do, since another version of Tidemark may have made it. It may be
    called again with the same tickets. A file that this very ticket made is never a conflict.
C3  `revoke` gives final answers only: after REVOKED nobody makes the name by that ticket, at no time.
C4  A name may have several tickets; at most one of them publishes while the name is there. A used ticket is
    used up: when the file is deleted it makes none again.
C5  Tickets of attempts are published only where an entry on the decisions names them, itself or in the report
    that it names. So who slept can publish what was decided, and nothing else.
C6  `close_attempt` may answer `NotBefore`: the instant stays pending, with its heartbeat, and is not rolled
    back until it answers `Settled`.
C7  A listing shows all that was acknowledged before it began. Deletions can be repeated.
C8  No caller sees folders of staging, times of files, or renames.

All methods may raise OSError; then nothing is known, and the call is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tidemark.hudi_format.publication.table_lock import TableLock
from tidemark.hudi_format.publication.tickets import Fate, Lease, NotBefore, Settled, TermId, Ticket
from tidemark.hudi_format.storage.base import FileContent, Storage


class Attempt(Protocol):
    """The right of one attempt's writers to make files; on the machines of executors."""

    @property
    def storage(self) -> Storage:
        """The table's folder, to read."""
        ...

    def prepare(self, path: str, data: FileContent) -> Ticket:
        """Repeatable. Raises `FencedOutError` when attempt or term is over, `AlreadyExistsError` when
        another content is visible under that name.
        """
        ...

    def put_pending(self, path: str, data: FileContent) -> None:
        """Makes a file that never counts: a marker, a heartbeat. One that is there stays as it is. Raises
        `FencedOutError`.
        """
        ...


class Publisher(Protocol):
    """What makes files of timelines."""

    @property
    def storage(self) -> Storage:
        """The table's folder, to read and to delete."""
        ...

    def prepare(self, path: str, data: FileContent, *, name_decides: bool = False) -> Ticket:
        """A ticket of this process; a successor begins anew."""
        ...

    def publish(self, tickets: Sequence[Ticket], lease: Lease | None = None) -> None:
        """``lease``: of the table's lock, for what must not appear without it.

        Raises `FencedOutError` (revoked, used up, or the term is over), `TimelineConflictError` (the
        name holds something else), `LockLostError`.
        """
        ...

    def put_pending(self, path: str, data: FileContent) -> None:
        """As `Attempt.put_pending`."""
        ...


class Term(Publisher, Protocol):
    """What a coordinator may do while no later one has claimed the table."""

    @property
    def id(self) -> TermId:
        """The term's number, and its ledger."""
        ...

    @property
    def lock(self) -> TableLock:
        """The table's lock, as this term holds it."""
        ...

    def open_attempt(self, epoch: int, attempt: int) -> str:
        """The attempt's token, for `locate.attempt_of`. Repeatable. Raises `FencedOutError`."""
        ...

    def close_attempt(self, epoch: int, attempt: int, tickets: Sequence[Ticket] = ()) -> Settled | NotBefore:
        """Ends the attempt, whichever term opened it. ``tickets``: those of it that the caller knows."""
        ...

    def adopt(self, epoch: int, attempt: int, paths: Sequence[str]) -> list[Ticket]:
        """Tickets of what that attempt prepared under these names in terms that have ended: for work that
        outlives a coordinator. They are published or revoked like any others.
        """
        ...

    def revoke(self, tickets: Sequence[Ticket]) -> Mapping[Ticket, Fate]:
        """What became of each; none of them is open afterwards."""
        ...

    def keep_pending(self, path: str) -> None:
        """Says anew when a pending file was written, if it is there."""
        ...

    def replace(self, path: str, data: FileContent) -> None:
        """Puts a document of ours in place of what may be there. Raises `FencedOutError`."""
        ...

    def remove_older(self) -> int:
        """Deletes what terms before this one left behind; returns the number of files."""
        ...


class Publication(Protocol):
    """One table's; for one process."""

    @property
    def storage(self) -> Storage:
        """The table's folder."""
        ...

    def open_term(self, term: TermId) -> Term:
        """Ends all older terms, then begins this one. Raises `AlreadyExistsError` when it was begun
        before.
        """
        ...

    def end_all_terms(self) -> None:
        """No coordinator of before can act on the table, and the lock is none of theirs. For a new ledger.
        Raises `LockHeldError` when another writer holds it.
        """
        ...

    def lock_of_no_term(self, ledger: str) -> AbstractContextManager[TableLock]:
        """The table's lock for a command that works without a term, while nobody serves the table."""
        ...

    def written_ms(self, path: str) -> int | None:
        """When a pending file was written last, by the storage's clock (Unix epoch); None: it is not
        there.
        """
        ...
