"""The history of one epoch: its attempts, and what it committed.

Times are milliseconds since 1970 by the coordinator's clock.
"""

from __future__ import annotations

import msgspec

from tidemark.epoch_protocol.entries import Counts


class AttemptRecord(msgspec.Struct):
    """One attempt at an epoch.

    ``instant`` is None for an epoch without rows; ``voided`` is the reason why the attempt was given up;
    ``timings_ms`` has the duration of each step.
    """

    attempt: int
    instant: str | None
    planned_ms: int
    decided_ms: int | None = None
    committed_ms: int | None = None
    voided: str | None = None
    timings_ms: dict[str, float] = {}


class EpochRecord(msgspec.Struct):
    """An epoch, its attempts, and the input that it covers.

    ``through``: the last ledger offset of the epoch. ``instant`` and ``completion``: those of its commit,
    None before. ``keyed_offsets`` and ``source_offsets``: per lane of `<table>.keyed` and of the input the
    range (first offset, offset after the last).
    """

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
        """Whether one of the attempts was committed."""
        return self.commit_ms is not None

    @property
    def commit_ms(self) -> int | None:
        """Milliseconds from the plan of the attempt that was committed to its commit; None without a
        commit.
        """
        for attempt in self.attempts:
            if attempt.committed_ms is not None:
                return attempt.committed_ms - attempt.planned_ms
        return None

    @property
    def state(self) -> str:
        """planned, decided, committed, or void: the state of the epoch's last attempt."""
        if not self.attempts:
            return "planned"
        last = self.attempts[-1]
        if last.committed_ms is not None:
            return "committed"
        if last.voided:
            return "void"
        return "decided" if last.decided_ms is not None else "planned"
