"""Figures of newest slices against a model that keeps every log file with its size and time."""

from __future__ import annotations

import random

from tidemark.commit_coordinator.domain.slice_stats import SliceBook, SliceStats


def test_figures_follow_random_commits_and_compactions() -> None:
    """Counts and bytes are exact; the oldest log is never taken for younger than it is."""
    draw = random.Random(5)
    for _ in range(60):
        stats = SliceStats("p", "f")
        base, logs = 0, []
        planned: tuple[int, list[tuple[int, int]]] | None = None
        for at_ms in range(1, 40):
            step = draw.random()
            if step < 0.6:
                size = draw.randrange(1, 9)
                stats = stats.with_log(size, at_ms)
                logs.append((at_ms, size))
            elif step < 0.7:
                stats, base, logs, planned = stats.with_base(at_ms), at_ms, [], None
            elif planned is None:
                planned = (at_ms, list(logs))
            else:
                instant, read = planned
                read_bytes = sum(size for _, size in read)
                stats = stats.compacted(instant * 10, len(read), read_bytes, instant)
                base, planned = instant * 10, None
                logs = [log for log in logs if log not in read]
            assert (stats.base_bytes, stats.log_count) == (base, len(logs))
            assert stats.log_bytes == sum(size for _, size in logs)
            assert stats.size == base + stats.log_bytes
            oldest = min((at for at, _ in logs), default=None)
            assert (stats.oldest_log_ms is None) == (oldest is None)
            assert stats.oldest_log_ms is None or oldest is None or stats.oldest_log_ms <= oldest


def test_a_list_of_slices_is_made_once_for_each_change() -> None:
    book = SliceBook([SliceStats("p", "f", 1)])
    before = book.listed()
    assert book.listed() is before
    book.put(book.of("p", "g").with_log(3, 7))
    assert set(book.listed()) == {SliceStats("p", "f", 1), SliceStats("p", "g", 0, 1, 3, 7)}
