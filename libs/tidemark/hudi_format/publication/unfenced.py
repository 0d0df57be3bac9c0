"""Publishing without a term: for a table that is being created, which nobody serves yet, and for tests that
play another engine.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.publication.held import HeldTickets, publish_held
from tidemark.hudi_format.publication.tickets import Lease, Ticket
from tidemark.hudi_format.storage.base import FileContent, Storage


class Unfenced:
    """`Publisher` without a fence: the first writer of a name makes the file."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held = HeldTickets(storage, "unfenced", sys.maxsize)

    @property
    def storage(self) -> Storage:
        return self._storage

    def prepare(self, path: str, data: FileContent, *, name_decides: bool = False) -> Ticket:
        return self._held.prepare(path, data, name_decides)

    def prepare_many(self, files: Sequence[tuple[str, FileContent]]) -> list[Ticket]:
        return [self.prepare(path, data) for path, data in files]

    def publish(self, tickets: Sequence[Ticket], lease: Lease | None = None) -> None:
        publish_held(self._held, tickets, self._storage.create)

    def put_pending(self, path: str, data: FileContent) -> None:
        with contextlib.suppress(AlreadyExistsError):
            self._storage.create(path, data)
