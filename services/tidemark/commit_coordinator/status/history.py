"""What happened to each epoch, from the decisions; for `epoch list`, `epoch show` and `status`.

Bounded: the newest `EPOCHS_MAX`. Written by the coordinator's loop, read by gRPC threads.
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

    def newest(self, limit: int) -> list[EpochRecord]:
        """The newest epochs, newest first, as they are now."""
        with self._lock:
            records = list(self._epochs.values())[-limit:]
            return [_copied(record) for record in reversed(records)]

    def show(self, epoch: int) -> EpochRecord | None:
        """One epoch as it is now, None when it is not (or no longer) held."""
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
        for each in record.attempts:
            if each.attempt == attempt:
                return each
        made = AttemptRecord(attempt, None, 0)
        record.attempts = [*record.attempts, made]
        return made


def _copied(record: EpochRecord) -> EpochRecord:
    """What the loop goes on writing is not seen in it."""
    attempts = [structs.replace(each, timings_ms=dict(each.timings_ms)) for each in record.attempts]
    return structs.replace(record, attempts=attempts)
