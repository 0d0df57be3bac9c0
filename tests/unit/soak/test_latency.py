"""Waiting times of sampled records, by the minute in which they were sent."""

from __future__ import annotations

from pathlib import Path

from tests.soak.feeder import Sent
from tests.soak.latency import Latencies


def test_record_waits_for_the_first_commit_behind_it(tmp_path: Path):
    latencies = Latencies(tmp_path, started_s=1_000.0)
    latencies.add([Sent(0, 5, 1_001.0), Sent(0, 9, 1_002.0), Sent(1, 5, 1_062.0)])
    latencies.committed({0: 9}, 1_003.0)
    assert latencies.waiting == 2
    latencies.committed({0: 10, 1: 6}, 1_064.0)
    assert latencies.waiting == 0
    first, second = latencies.of_minute(0), latencies.of_minute(1)
    assert first is not None
    assert first.records == 2
    assert first.p50_s == 32.0
    assert first.p99_s > 61.0
    assert second == (2.0, 2.0, 1)


def test_minute_without_a_committed_record_has_no_latency(tmp_path: Path):
    latencies = Latencies(tmp_path, started_s=0.0)
    latencies.add([Sent(0, 5, 1.0)])
    latencies.committed({0: 5}, 2.0)
    assert latencies.of_minute(0) is None
