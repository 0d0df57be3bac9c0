"""What happened to each epoch, from the decisions; for `epoch list`, `epoch show` and `status`.

Bounded: the newest `EPOCHS_MAX`. Written by the coordinator's loop, read by gRPC threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence, Set
from typing import Any, Final

import msgspec

from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CommitDecided,
    Counts,
    EpochCommitted,
    EpochPlanned,
    Rewound,
)
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.state import CountedTagged
from tidemark.ledger_client.fold_reader import Applied

EPOCHS_MAX: Final = 1_000
_REWINDS_MAX: Final = 100


class AttemptRecord(msgspec.Struct):
    """One attempt at an epoch; times are epoch milliseconds of the coordinator's clock."""

    attempt: int
    instant: str | None
    planned_ms: int
    decided_ms: int | None = None
    committed_ms: int | None = None
    voided: str | None = None
    timings_ms: dict[str, float] = {}


class EpochRecord(msgspec.Struct):
    """An epoch: its attempts and, once it is committed, what it covered."""

    epoch: int
    through: int
    attempts: list[AttemptRecord] = []
    instant: str | None = None
    completion: str | None = None
    counts: Counts = Counts()
    bytes: int = 0
    transactions: int = 0
    keyed_offsets: dict[str, tuple[int, int]] = {}
    source_offsets: dict[str, tuple[int, int]] = {}

    @property
    def is_committed(self) -> bool:
        """Whether an attempt was committed."""
        return any(each.committed_ms is not None for each in self.attempts)


class EpochHistory:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: OrderedDict[int, EpochRecord] = OrderedDict()
        self._rewinds: list[str] = []

    def observe(self, applied: Applied) -> None:
        """Takes one applied entry of the decisions; everything else is passed over."""
        entry = applied.entry
        if applied.verdict is not Verdict.APPLIED:
            return
        with self._lock:
            if isinstance(entry, EpochPlanned):
                self._planned(entry)
            elif isinstance(entry, CommitDecided):
                self._attempt(entry.epoch, entry.attempt).decided_ms = entry.decided_ms
            elif isinstance(entry, EpochCommitted):
                self._attempt(entry.epoch, entry.attempt).committed_ms = entry.committed_ms
                record = self._epochs[entry.epoch]
                record.instant, record.completion = entry.instant, entry.completion
            elif isinstance(entry, AttemptVoided):
                self._attempt(entry.epoch, entry.attempt).voided = entry.reason
            elif isinstance(entry, Rewound):
                self._rewinds = [*self._rewinds[1 - _REWINDS_MAX :], entry.reason]

    def cover(
        self,
        epoch: int,
        manifest: Sequence[CountedTagged],
        keyed: dict[str, tuple[int, int]],
        sources: dict[str, tuple[int, int]],
    ) -> None:
        """Says what the epoch covers, before its commit takes that out of the fold."""
        with self._lock:
            record = self._epochs.get(epoch)
            if record is None:
                return
            record.counts = sum((t.entry.counts for t in manifest), Counts())
            record.bytes = sum(t.entry.bytes for t in manifest)
            record.transactions = len(manifest)
            record.keyed_offsets, record.source_offsets = keyed, sources

    def timed(self, epoch: int, attempt: int, timings_ms: dict[str, float]) -> None:
        """Adds the milliseconds of steps to an attempt."""
        with self._lock:
            if epoch in self._epochs:
                self._attempt(epoch, attempt).timings_ms.update(timings_ms)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """Documents of the newest epochs, newest first."""
        with self._lock:
            records = list(self._epochs.values())[-limit:]
            return [msgspec.to_builtins(record) for record in reversed(records)]

    def show(self, epoch: int) -> dict[str, Any] | None:
        """The document of one epoch, None when it is not (or no longer) held."""
        with self._lock:
            record = self._epochs.get(epoch)
            return None if record is None else dict(msgspec.to_builtins(record))

    def of_instants(self, instants: Set[str]) -> dict[str, dict[str, Any]]:
        """Hudi instant -> the document of the epoch that it committed, for those that are held."""
        with self._lock:
            found = [each for each in self._epochs.values() if each.instant in instants]
            return {str(each.instant): msgspec.to_builtins(each) for each in found}

    def rewinds(self) -> list[str]:
        """Reasons of the rewinds since the coordinator started, oldest first."""
        with self._lock:
            return list(self._rewinds)

    def _planned(self, entry: EpochPlanned) -> None:
        record = self._epochs.setdefault(entry.epoch, EpochRecord(entry.epoch, entry.through))
        record.through = entry.through
        record.attempts = [*record.attempts, AttemptRecord(entry.attempt, entry.instant, entry.planned_ms)]
        while len(self._epochs) > EPOCHS_MAX:
            self._epochs.popitem(last=False)

    def _attempt(self, epoch: int, attempt: int) -> AttemptRecord:
        record = self._epochs.setdefault(epoch, EpochRecord(epoch, -1))
        for each in record.attempts:
            if each.attempt == attempt:
                return each
        made = AttemptRecord(attempt, None, 0)
        record.attempts = [*record.attempts, made]
        return made
