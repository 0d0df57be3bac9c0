"""When the next transaction of a slot is due.

It is due `limits.transaction_interval` after its first record came, or when it has `transaction_records`
or `transaction_bytes`, or when the stage reports that there is no more input to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.index_assigner.slots.stage_work import Budget, Gathered
from tidemark.stream_runtime.clock import Clock


@dataclass(frozen=True)
class TransactionLimits:
    """How long, and for how much input, a transaction waits: the settings `limits.transaction_interval`,
    `transaction_records` and `transaction_bytes`.
    """

    interval_ms: int
    records: int
    bytes: int


class TransactionPace:
    """Tracks what waits for the next transaction, and since when."""

    def __init__(self, limits: TransactionLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._gathered = Gathered(0, 0)
        self._first_record_s: float | None = None
        self.progressed = True

    @property
    def records(self) -> int:
        """How many records wait for the next transaction."""
        return self._gathered.records

    def budget(self) -> Budget | None:
        """How much more may be gathered; None when the transaction is full."""
        left = Budget(
            self._limits.records - self._gathered.records, self._limits.bytes - self._gathered.bytes
        )
        return left if left.records > 0 and left.bytes > 0 else None

    def took(self, gathered: Gathered) -> None:
        """Records how much input waits in the stage now."""
        self.progressed = gathered != self._gathered
        self._gathered = gathered
        if gathered.records and self._first_record_s is None:
            self._first_record_s = self._clock.monotonic_s()

    def forget(self) -> None:
        """Starts over, after a transaction took the input or some of it was dropped.

        The next `took` tells what is left.
        """
        self._gathered, self._first_record_s = Gathered(0, 0), None

    def wait_s(self, longest_s: float) -> float:
        """How long to wait for input: at most ``longest_s``, and no longer than until the transaction is
        due.
        """
        if self._first_record_s is None:
            return longest_s
        due_s = self._first_record_s + self._limits.interval_ms / 1000
        return min(max(due_s - self._clock.monotonic_s(), 0.0), longest_s)

    def is_due(self) -> bool:
        """Whether the transaction should run now."""
        if self._first_record_s is None:
            return False
        due = self._gathered.drained or self.budget() is None
        return due or self.wait_s(self._limits.interval_ms / 1000) == 0.0
