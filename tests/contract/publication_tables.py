"""Every way of publishing, for the contract of the publication port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testing.clock import ManualClock
from testing.faulty_storage import FaultyStorage
from testing.ids import SeededIds
from testing.memory_storage import InMemoryStorage
from testing.objects.publication import ObjectAttempt, ObjectPublication
from testing.objects.store import ObjectStore
from tidemark.hudi_format.publication.port import Attempt, Publication, Term
from tidemark.hudi_format.publication.posix import PosixAttempt, PosixPublication
from tidemark.hudi_format.publication.tickets import NotBefore, TermId
from tidemark.hudi_format.storage.base import FolderStorage
from tidemark.hudi_format.storage.local import LocalStorage


@dataclass
class Table:
    """One table's publication, as a coordinator and as writers have it."""

    publication: Publication
    attempt: Callable[[str], Attempt]
    clock: ManualClock
    terms: int = 0

    def begin(self, ledger: str = "l") -> Term:
        self.terms += 1
        return self.publication.open_term(TermId(self.terms, ledger))

    def content(self, path: str) -> bytes | None:
        storage = self.publication.storage
        return storage.read(path) if storage.exists(path) else None

    def close(self, term: Term, epoch: int, attempt: int) -> None:
        """Until it is settled."""
        while isinstance(answer := term.close_attempt(epoch, attempt), NotBefore):
            assert answer.ms > self.clock.now_ms()
            self.clock.advance((answer.ms - self.clock.now_ms()) / 1000)


def over_folders(storage: FolderStorage) -> Table:
    clock = ManualClock()
    publication = PosixPublication(storage, clock, SeededIds(1))
    return Table(publication, lambda token: PosixAttempt(storage, token), clock)


def over_objects(_: Path) -> Table:
    clock = ManualClock()
    store = ObjectStore(clock=clock)
    publication = ObjectPublication(store, clock, SeededIds(1))
    return Table(publication, lambda token: ObjectAttempt(store, token), clock)


MADE: dict[str, Callable[[Path], Table]] = {
    "posix": lambda path: over_folders(LocalStorage(path / "table")),
    "posix in memory": lambda _: over_folders(InMemoryStorage()),
    "posix with faults": lambda _: over_folders(FaultyStorage(InMemoryStorage())),
    "objects": over_objects,
}
