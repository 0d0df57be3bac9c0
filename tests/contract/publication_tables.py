"""Every way of publishing, for the contract of the publication port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, cast

from testing.clock import ManualClock
from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from testing.ids import SeededIds
from testing.memory_storage import InMemoryStorage
from testing.objects.publication import ObjectAttempt, ObjectPublication, ObjectServiceFiles
from testing.objects.store import ObjectStore
from tidemark.hudi_format.publication.port import Attempt, Publication, ServiceFiles, Term
from tidemark.hudi_format.publication.posix import PosixAttempt, PosixPublication
from tidemark.hudi_format.publication.staged import PosixServiceFiles
from tidemark.hudi_format.publication.tickets import NotBefore, TermId
from tidemark.hudi_format.storage.base import FolderStorage
from tidemark.hudi_format.storage.local import LocalStorage


@dataclass
class Table:
    """One table's publication, as a coordinator and as writers have it."""

    publication: Publication
    attempt: Callable[[str], Attempt]
    files: Callable[[str], ServiceFiles]
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
    return Table(
        publication,
        lambda token: PosixAttempt(storage, token),
        lambda token: PosixServiceFiles(storage, token),
        clock,
    )


class Repeating:
    """A publication, term or attempt where a fault strikes in each call of `CHANGES`, by turns before and
    after the effect; the call is then made again, as callers do.
    """

    def __init__(self, inner: object, storage: FaultyStorage, whens: Iterator[When]) -> None:
        self._inner, self._storage, self._whens = inner, storage, whens

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "open_term":
            return lambda term: Repeating(found(term), self._storage, self._whens)
        return partial(self._twice, found) if name in CHANGES else found

    def _twice(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self._storage.fail("*", when=next(self._whens))
        try:
            return call(*args, **named)
        except InjectedFaultError:
            return call(*args, **named)
        finally:
            self._storage.fail_no_more()


CHANGES = {
    "prepare",
    "prepare_many",
    "publish",
    "put_pending",
    "open_attempt",
    "close_attempt",
    "open_service",
    "close_service",
    "adopt",
    "replace",
    "remove_older",
    "remove_dead_commands",
}
"""The repeatable calls that change something. A term is begun once, and its lock has tests of its own."""


def over_failing_folders() -> Table:
    storage, whens = FaultyStorage(InMemoryStorage()), cycle(When)
    table = over_folders(storage)
    return Table(
        cast(Publication, Repeating(table.publication, storage, whens)),
        lambda token: cast(Attempt, Repeating(PosixAttempt(storage, token), storage, whens)),
        lambda token: cast(ServiceFiles, Repeating(PosixServiceFiles(storage, token), storage, whens)),
        table.clock,
    )


def over_objects(_: Path) -> Table:
    clock = ManualClock()
    store = ObjectStore(clock=clock)
    publication = ObjectPublication(store, clock, SeededIds(1))
    return Table(
        publication,
        lambda token: ObjectAttempt(store, token),
        lambda token: ObjectServiceFiles(store, token),
        clock,
    )


MADE: dict[str, Callable[[Path], Table]] = {
    "posix": lambda path: over_folders(LocalStorage(path / "table")),
    "posix in memory": lambda _: over_folders(InMemoryStorage()),
    "posix, where each change fails once": lambda _: over_failing_folders(),
    "objects": over_objects,
}
