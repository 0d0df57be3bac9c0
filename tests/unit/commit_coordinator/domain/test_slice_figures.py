"""Figures of newest slices against a model that keeps every log file with its size and time."""

from __future__ import annotations

import random

from tidemark.commit_coordinator.domain.slice_figures import SliceBook, SliceFigures


def test_figures_follow_random_commits_and_compactions() -> None:
    """Counts and bytes are exact; the oldest log is never taken for younger than it is."""
    draw = random.Random(5)
    for _ in range(60):
        figures = SliceFigures("p", "f")
        base, logs = 0, []
        planned: tuple[int, list[tuple[int, int]]] | None = None
        for at_ms in range(1, 40):
            step = draw.random()
            if step < 0.6:
                size = draw.randrange(1, 9)
                figures = figures.with_log(size, at_ms)
                logs.append((at_ms, size))
            elif step < 0.7:
                figures, base, logs, planned = figures.with_base(at_ms), at_ms, [], None
            elif planned is None:
                planned = (at_ms, list(logs))
            else:
                instant, read = planned
                read_bytes = sum(size for _, size in read)
                figures = figures.compacted(instant * 10, len(read), read_bytes, instant)
                base, planned = instant * 10, None
                logs = [log for log in logs if log not in read]
            assert (figures.base_bytes, figures.log_count) == (base, len(logs))
            assert figures.log_bytes == sum(size for _, size in logs)
            assert figures.size == base + figures.log_bytes
            oldest = min((at for at, _ in logs), default=None)
            assert (figures.oldest_log_ms is None) == (oldest is None)
            assert figures.oldest_log_ms is None or oldest is None or figures.oldest_log_ms <= oldest


def test_a_list_of_slices_is_made_once_for_each_change() -> None:
    book = SliceBook([SliceFigures("p", "f", 1)])
    before = book.listed()
    assert book.listed() is before
    book.put(book.of("p", "g").with_log(3, 7))
    assert set(book.listed()) == {SliceFigures("p", "f", 1), SliceFigures("p", "g", 0, 1, 3, 7)}
