"""All rows of a workload into an empty table, through Kafka."""

from __future__ import annotations

from itertools import islice
from typing import Final

from bench.commit_watch import CommitWatch
from bench.feeder import BatchFeeder
from bench.workload import CHUNK_ROWS, Workload

_TIMEOUT_S: Final = 900.0
_CHUNKS: Final = 10


def load(feeder: BatchFeeder, watch: CommitWatch, workload: Workload) -> float:
    """Publishes a million rows in a transaction of Kafka's and waits until all are committed. Returns the
    seconds from the first transaction on: of more than a million rows, making them is in the time.
    """
    started_s, chunks = 0.0, workload.initial_rows()
    while part := list(islice(chunks, _CHUNKS)):
        appeared_s, ends = feeder.publish(part)
        started_s = started_s or appeared_s
    timeout_s = _TIMEOUT_S * max(workload.region_of.size // (_CHUNKS * CHUNK_ROWS), 1)
    return watch.wait_for(ends, timeout_s).seen_s - started_s
