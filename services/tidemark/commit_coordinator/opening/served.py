"""How a coordinator shows which table it serves: to who asks it, and to who sees the table's folder.

The command line asks before every command (`Serves`). The answer comes from memory, so that `tidemark status`
is answered while the storage is not. Where the table lies is looked at when it is taken over, and again with
each sign of life: others write `hoodie.properties` anew, and it is another file then.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tidemark.commit_coordinator.opening.ledger_identity import location_of
from tidemark.commit_coordinator.opening.sign_of_life import SignOfLife
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.served_by import SERVED_BY, Served


class ServedTable:
    """One table's answer. The thread that takes over, then that of the sign, change it; others read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._term: Term | None = None
        self._answer = Served(storage.base_uri)

    def taken_over(self, term: Term, owner: str) -> None:
        """Leaves the coordinator's name with the table. Raises as `show_owner`."""
        show_owner(term, owner)
        self._term = term
        self._answer = Served(self._storage.base_uri, owner, location_of(self._storage))

    def sign_of_life(self) -> SignOfLife:
        """To be given while the table is served, once it is taken over."""
        assert self._term is not None
        return SignOfLife(self._term, self._answer.owner, self.look)

    def look(self) -> None:
        """Looks where the table lies now; where the storage does not say, the answer stays."""
        with contextlib.suppress(OSError):
            self._answer = replace(self._answer, location=location_of(self._storage))

    def answer(self) -> Served:
        """As it was seen last."""
        return self._answer


def show_owner(term: Term, owner: str) -> None:
    """Leaves a coordinator's own name with the table, for who asks whether it is this one that it serves.

    A path would not tell: it differs between containers and may be the same on two machines. Raises
    FencedOutError when the term is over.
    """
    term.replace(SERVED_BY, owner.encode())
