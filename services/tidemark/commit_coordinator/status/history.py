"""The history of the newest `EPOCHS_MAX` epochs, from the decisions, for `epoch list`, `epoch show`,
`status`.

The coordinator's loop writes it, gRPC threads read it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from msgspec import structs

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
from tidemark.table_status.epochs import AttemptRecord, EpochRecord

EPOCHS_MAX: Final = 1_000
_REWINDS_MAX: Final = 100


class EpochHistory:
    """The newest epochs with their attempts, and the newest reasons of rewinds; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: OrderedDict[int, EpochRecord] = OrderedDict()
        self._rewinds: list[str] = []

    def observe(self, applied: Applied) -> None:
        """Takes an applied entry of the decisions; ignores all other entries."""
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
        """Notes which transactions and offsets the epoch covers, before its commit removes them from the
        fold.

        ``keyed``, ``sources``: lane -> half-open range of offsets.
        """
        with self._lock:
            record = self._epochs.get(epoch)
            if record is None:
                return
            record.counts = sum((t.entry.counts for t in manifest), Counts())
            record.bytes = sum(t.entry.bytes for t in manifest)
            record.transactions = len(manifest)
            record.keyed_offsets, record.source_offsets = keyed, sources

    def timed(self, epoch: int, attempt: int, timings_ms: dict[str, float]) -> None:
        """Adds milliseconds by step to an attempt."""
        with self._lock:
            if epoch in self._epochs:
                self._attempt(epoch, attempt).timings_ms.update(timings_ms)

    def newest(self, limit: int) -> list[EpochRecord]:
        """Copies of at most ``limit`` epochs, the newest first."""
        with self._lock:
            records = list(self._epochs.values())[-limit:]
            return [_copied(record) for record in reversed(records)]

    def show(self, epoch: int) -> EpochRecord | None:
        """A copy of the epoch's record, None if it is not known, or not any more."""
        with self._lock:
            record = self._epochs.get(epoch)
            return None if record is None else _copied(record)

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
        for known in record.attempts:
            if known.attempt == attempt:
                return known
        made = AttemptRecord(attempt, None, 0)
        record.attempts = [*record.attempts, made]
        return made


def _copied(record: EpochRecord) -> EpochRecord:
    """A copy that does not change when the loop continues to write the record."""
    attempts = [structs.replace(old, timings_ms=dict(old.timings_ms)) for old in record.attempts]
    return structs.replace(record, attempts=attempts)
