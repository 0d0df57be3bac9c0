"""Turns the coordinator's status and epochs into the numbers that the demo shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tidemark.demo.terminal import CacheTierStats, DemoStats
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.status import Status

_RATE_WINDOW_S: Final = 4.0
# By tier: the stat of answered keys and that of held keys, as the assigners report them.
_TIERS: Final = {
    "uncommitted": ("keys_uncommitted", "uncommitted_entries"),
    "hot": ("keys_hot", "hot_entries"),
    "rocksdb": ("keys_rocksdb", None),
    "run": ("keys_run", "run_entries"),
    "mdt": ("keys_mdt", None),
}


class Progress:
    """Keeps what is needed for rates and latencies. A rate is a mean over the last `_RATE_WINDOW_S` seconds,
    because epochs commit in steps: between two calls there is often one commit or none.
    """

    def __init__(self, records_total: int, started_s: float) -> None:
        self._total = records_total
        self._started_s = started_s
        self._seen: deque[tuple[float, int, int]] = deque([(started_s, 0, 0)])
        self._latencies: dict[int, int] = {}

    def stats(
        self,
        phase: str,
        now_s: float,
        sent: int,
        status: Status | None,
        epochs: Sequence[EpochRecord] = (),
    ) -> DemoStats:
        """The numbers to show now. Without a status, while services start, only the number of sent
        records is known.
        """
        if status is None:
            return DemoStats(
                phase=phase, elapsed_s=now_s - self._started_s, records_total=self._total, sent=sent
            )
        self.remember(epochs)
        committed = committed_records(status)
        self._seen.append((now_s, sent, committed))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _RATE_WINDOW_S:
            self._seen.popleft()
        before_s, sent_before, committed_before = self._seen[0]
        elapsed_s = max(now_s - before_s, 1e-6)
        counts = status.records.committed
        newest = status.last_commit.epoch
        return DemoStats(
            phase=phase,
            elapsed_s=now_s - self._started_s,
            records_total=self._total,
            sent=sent,
            sent_per_s=(sent - sent_before) / elapsed_s,
            committed=committed,
            committed_per_s=(committed - committed_before) / elapsed_s,
            lag_records=max(sent - committed, 0),
            epochs_committed=newest,
            epochs_in_flight=int(status.in_flight.epoch is not None),
            last_instant=status.last_commit.instant,
            commit_latency_ms_last=self._latencies.get(newest),
            commit_latency_ms_p50=self.latency_ms(50),
            commit_latency_ms_p99=self.latency_ms(99),
            inserts=counts.inserts,
            updates=counts.updates,
            deletes=counts.deletes,
            dead_letters=status.records.dead_letters,
            tiers=tiers(status),
        )

    def remember(self, epochs: Sequence[EpochRecord]) -> None:
        """Adds the commit latencies of epochs that had rows."""
        for epoch in epochs:
            if epoch.commit_ms is not None and epoch.instant:
                self._latencies[epoch.epoch] = epoch.commit_ms

    def latency_ms(self, percentile: int) -> float | None:
        """Nearest-rank percentile of the times from plan to commit, in milliseconds; None before the
        first commit.
        """
        # -(-a // b) rounds a / b up: of 3 latencies the 50th percentile has rank ceil(1.5) = 2.
        ordered = sorted(self._latencies.values())
        return float(ordered[max(-(-len(ordered) * percentile // 100), 1) - 1]) if ordered else None


def committed_records(status: Status) -> int:
    """The number of input records that the pipeline has finished: they are committed or became dead
    letters.
    """
    return status.records.committed.input + status.records.dead_letters


def tiers(status: Status) -> tuple[CacheTierStats, ...]:
    """For each tier the look-ups that it answered and the keys that it holds, summed over all assigners."""
    stats: dict[str, float] = {}
    for member in status.services.assign:
        for name, value in member.figures.items():
            stats[name] = stats.get(name, 0.0) + value
    return tuple(
        CacheTierStats(tier, int(stats[answered]), int(stats[held]) if held in stats else None)
        for tier, (answered, held) in _TIERS.items()
        if answered in stats
    )
