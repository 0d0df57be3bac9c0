"""How long a commit holds the table's lock when it begins many data partitions of a partitioned record index,
whose first files appear under the lock.

    python -m bench.begun_holds                                 10 and 1 000 partitions with 16 groups each
    python -m bench.begun_holds --partitions 100 --shards 2

The coordinator and the writer's tasks run in this process over a folder, without Spark and Kafka. After the
epoch that begins the partitions comes one that inserts as many rows into them. Times are CPU time of the
process, and wall time, which has the syncs of the disk; those of the step before the lock are in 16 threads.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.conditions import conditions, load_average
from bench.lock_holds import Holds, noted
from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_epochs import row
from tidemark.commit_coordinator.commit import begun_partitions, commit_effects
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.table_config import TableType

_STEPS_MAX = 20


def measure(folder: Path, partitions: int, shards: int, rows: int) -> Iterator[str]:
    """Two epochs with so many rows; lines about each."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True, partition_shards=shards)
    for number in (1, 2):
        path.tag(
            [
                (
                    row(f"k{number}-{key}", 1, 1, f"d{key % partitions}"),
                    DataOp.INSERT,
                    _file_id(key % partitions),
                )
                for key in range(rows)
            ]
        )
        yield from _commit(path, number)


def _commit(path: CommitPath, number: int) -> Iterator[str]:
    before = _files(path)
    for _ in range(_STEPS_MAX):
        path.step_coordinator()
        if path.write_open_attempt():
            break
    assert path.context is not None
    assert path.coordinator is not None
    holds = Holds(doing=("epoch", "commit"))
    took = [0.0, 0.0]

    def timed(*args: Any) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        begun_partitions.prepare_commit(*args)
        took[0] += time.perf_counter() - wall
        took[1] += time.process_time() - cpu

    with patch.object(commit_effects, "prepare_commit", timed), noted(path.context.lock, holds):
        for _ in range(_STEPS_MAX):
            path.coordinator.step(0.0)
            if path.state().committed.epoch == number:
                break
    assert path.state().committed.epoch == number
    made = _files(path) - before
    yield f"epoch {number}: {made} files of the index; prepared before the lock in {_ms(took)}"
    yield from holds.lines()
    path.clock.advance(1.0)
    path.context.lock.free()


def _ms(took: Sequence[float]) -> str:
    return f"{took[0] * 1e3:.1f} ms, {took[1] * 1e3:.1f} ms of CPU"


def _files(path: CommitPath) -> int:
    return len(path.storage.names(RECORD_INDEX_FOLDER))


def _file_id(partition: int) -> str:
    return f"00000000-0000-4000-8000-{partition:012}-0"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.begun_holds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 1_000])
    parser.add_argument("--shards", type=int, default=16, help="file groups of each partition")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of each epoch")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tidemark-begun-"))
    try:
        print(conditions())
        for partitions in options.partitions:
            print(f"{partitions} partitions with {options.shards} file groups, {options.rows} rows:")
            for line in measure(work / str(partitions), partitions, options.shards, options.rows):
                print(line, flush=True)
        print(f"load after it {load_average()}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
