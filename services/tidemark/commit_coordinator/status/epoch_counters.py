"""Counts this coordinator's attempts, recommits and rewinds, from the entries that its reader applies.

Entries of earlier coordinators are not counted. Only an open `CommitDecided` of theirs is remembered: if this
coordinator finishes it, that counts as a recommit by takeover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CommitDecided,
    EpochCommitted,
    EpochPlanned,
    Rewound,
)
from tidemark.epoch_protocol.fold import Verdict
from tidemark.ledger_client.fold_reader import Applied


class EpochCounters:
    """The counters. The coordinator's thread calls ``observe``; any thread may read them."""

    def __init__(self, term: Callable[[], int]) -> None:
        """``term``: gives this coordinator's term, -1 before it has one."""
        self._term = term
        self._decided: CommitDecided | None = None
        self.attempts: Counter[str] = Counter()
        self.recommits: Counter[str] = Counter()
        self.rewinds = 0

    def observe(self, applied: Applied) -> None:
        """Counts an applied entry of the decisions; ignores all other entries."""
        entry = applied.entry
        if applied.verdict is not Verdict.APPLIED or not isinstance(
            entry, EpochPlanned | CommitDecided | EpochCommitted | AttemptVoided | Rewound
        ):
            return
        decided = self._decided
        if isinstance(entry, CommitDecided):
            self._decided = entry
            return
        if not isinstance(entry, Rewound):
            self._decided = None
        if entry.term != self._term():
            return
        if isinstance(entry, EpochPlanned):
            self.attempts["planned"] += 1
        elif isinstance(entry, EpochCommitted):
            self.attempts["committed"] += 1
            self.recommits["takeover"] += decided is not None and decided.term != entry.term
        elif isinstance(entry, AttemptVoided):
            self.attempts["voided"] += 1
            self.recommits["taken_back"] += bool(entry.undecides)
        else:
            self.rewinds += 1
