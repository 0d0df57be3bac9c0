"""Shows which table a coordinator serves: as the answer to the call `Serves`, and by a file in the folder.

The command line asks `Serves` before every command. The answer comes from memory, so that `tidemark status`
works while the storage does not answer. The table's place is read at the takeover, and again with each sign
of life, because other writers replace `hoodie.properties`, and the new file has another inode.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tidemark.commit_coordinator.opening.ledger_identity import location_of
from tidemark.commit_coordinator.opening.sign_of_life import SignOfLife
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.table_identity import SERVED_BY, Served


class ServedTable:
    """The answer of one table's coordinator. The sign of life's thread changes it, gRPC threads read it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._term: Term | None = None
        self._answer = Served(storage.base_uri)

    def taken_over(self, term: Term, owner: str) -> None:
        """Writes the coordinator's name into the table's folder. Raises FencedOutError, OSError."""
        show_owner(term, owner)
        self._term = term
        self._answer = Served(self._storage.base_uri, owner, location_of(self._storage))

    def sign_of_life(self) -> SignOfLife:
        """A context manager for the time in which the table is served, after `taken_over`."""
        assert self._term is not None
        return SignOfLife(self._term, self._answer.owner, self.look)

    def look(self) -> None:
        """Reads the table's place anew; if the storage does not answer, the known place stays."""
        with contextlib.suppress(OSError):
            self._answer = replace(self._answer, location=location_of(self._storage))

    def answer(self) -> Served:
        """Owner, path and place of the table, as they were last read."""
        return self._answer


def show_owner(term: Term, owner: str) -> None:
    """Writes the coordinator's name into the table's folder. A command compares it with what `Serves` says.

    The table's path is not enough: it differs between containers, and two machines may have the same path.
    Raises FencedOutError when the term is over.
    """
    term.replace(SERVED_BY, owner.encode())
