"""What happened to an epoch. Times are milliseconds since 1970 of the coordinator's clock."""

from __future__ import annotations

import msgspec

from tidemark.epoch_protocol.entries import Counts


class AttemptRecord(msgspec.Struct):
    """One attempt at an epoch."""

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
