"""What a partitioned record index costs a commit: the same batches go in turn to a table with it and to one
with a global index. Each batch touches every data partition.

    python -m bench.partitioned_costs                    Tidemark and Hudi on Spark, 10 and 1 000 partitions
    python -m bench.partitioned_costs --only tidemark --partitions 1000 --repeat 15

Batches into another partition warm both up. The first commit begins the partitions in both tables; the later
ones are upserts of which 90 % are updates. Seconds and CPU seconds as in `bench.index_costs`. "Under the
lock" is what the coordinator's steps from the stored decision to the data commit take; the lock is held a
little longer.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bench.conditions import conditions, load_average
from bench.hudi_baseline import HudiTable
from bench.hudi_settings import SPARK_SETTINGS
from bench.index_costs import HUDI_HEAP
from bench.one_run import OneRun
from bench.turns import Side, Taken, upserts
from bench.whole_run import command_line, numbers, report, say
from bench.wide_rows import WideWorkload
from tests.interop.hudi_options import PARTITIONED_RECORD_INDEX
from tests.interop.spark_session import start_spark
from tidemark.stream_runtime.platform.jars import ensure_jars

SIDES: Final = ("tidemark", "hudi")
_COLUMNS: Final = 7
_FIRST: Final = 0
"""Stands for the first commit among the sizes of batches."""
_WARM_UP: Final = -1
_WARM_UP_BATCHES: Final = 3
_LOCKED: Final = ("decide_store", "decide_append", "commit_files", "commit_metadata", "commit_data")


def tidemark(options: argparse.Namespace, partitions: int, folder: Path) -> dict[str, Any]:
    """Both tables with so many partitions; returns global and partitioned -> rows of a batch -> figures."""
    workload = WideWorkload(options.keys, _COLUMNS, options.seed, partitions)
    kinds: dict[str, Mapping[str, Any]] = {
        "global": {},
        "partitioned": {"kind": "partitioned", "shards": options.shards},
    }
    with ExitStack() as stack:
        runs = {
            name: OneRun(stack, folder / f"{name}-{partitions}", workload, [], index=index)
            for name, index in kinds.items()
        }
        sides = {name: Side(run.take) for name, run in runs.items()}
        _in_turn(sides, workload, options, f"Tidemark, {partitions} partitions")
        for name, run in runs.items():
            run.add_steps(sides[name].taken)
        verified = {name: run.run.command("verify") for name, run in runs.items()}
    return {"partitions": partitions, "verified": verified, **_figures(sides)}


def hudi(options: argparse.Namespace, partitions: int, folder: Path) -> dict[str, Any]:
    """As `tidemark`, with two tables that one session of Spark writes."""
    workload = WideWorkload(options.keys, _COLUMNS, options.seed, partitions)
    shards = str(options.shards)
    partitioned = {
        **PARTITIONED_RECORD_INDEX,
        "hoodie.metadata.global.record.level.index.enable": "false",
        "hoodie.metadata.record.level.index.min.filegroup.count": shards,
        "hoodie.metadata.record.level.index.max.filegroup.count": shards,
    }
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder / "tables", ignore_errors=True)
        (folder / "tables").mkdir()
        spark = start_spark(ensure_jars("hudi-spark"), folder / "tables", HUDI_HEAP, SPARK_SETTINGS)
        stack.callback(spark.stop)
        sides: dict[str, Side] = {}
        for name, more in (("global", {}), ("partitioned", partitioned)):
            scratch = folder / "tables" / name
            scratch.mkdir()
            table = HudiTable(spark, folder / "tables" / f"{name}-table", scratch, more)
            sides[name] = Side(upserts(table))
        _in_turn(sides, workload, options, f"Hudi, {partitions} partitions")
    return {"partitions": partitions, **_figures(sides)}


def _in_turn(sides: Mapping[str, Side], workload: WideWorkload, options: Any, what: str) -> None:
    """All rows as the first batch, then the others; who is first changes each time."""
    for _ in range(_WARM_UP_BATCHES):
        for side in sides.values():
            side.batch(_WARM_UP, _elsewhere(WideWorkload(1_000, _COLUMNS, options.seed, 1)))
    sizes = [(_FIRST, 1), *((size, options.repeat) for size in options.batches)]
    [first] = workload.initial_rows()
    for size, repeat in sizes:
        for number in range(repeat):
            rows = workload.batch(size) if size else first
            for name in list(sides) if number % 2 else list(sides)[::-1]:
                sides[name].batch(size, rows)
        told = ", ".join(f"{name} {side.taken[size].figures()['median_s']} s" for name, side in sides.items())
        say(f"{what}, {_named(size, options.keys)}: {told}")


def _elsewhere(workload: WideWorkload) -> pa.Table:
    """All rows of the workload, in a partition and with keys of their own."""
    [rows] = workload.initial_rows()
    ids = pc.binary_join_element_wise("warm", rows["id"], "-")
    rows = rows.set_column(0, "id", ids)
    return rows.set_column(1, "region", pa.array(["warm"] * rows.num_rows))


def _named(size: int, keys: int) -> str:
    return f"{size} rows" if size else f"first commit, {keys} rows"


def _figures(sides: Mapping[str, Side]) -> dict[str, Any]:
    return {
        name: {
            size: {**taken.figures(), "locked_ms": _locked(taken)}
            for size, taken in side.taken.items()
            if size >= 0
        }
        for name, side in sides.items()
    }


def _locked(taken: Taken) -> float:
    steps: dict[str, float] = taken.figures()["median_steps_ms"]
    return round(sum(steps.get(step, 0.0) for step in _LOCKED), 1)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield (
        f"MERGE_ON_READ, {_COLUMNS} columns, no compaction, {found['shards']} groups of the index for each "
        f"partition, 8 of the global one; medians of {found['repeat']}; Spark with 2 slots; Hudi's heap "
        f"{HUDI_HEAP}"
    )
    for side in SIDES:
        for case in found.get(side, []):
            for size, off in case["global"].items():
                on = case["partitioned"][size]
                yield (
                    f"{side}: {case['partitions']} partitions, {_named(size, found['keys'])}: global -> "
                    f"partitioned: {off['median_s']} -> {on['median_s']} s, {off['median_cpu_s']} -> "
                    f"{on['median_cpu_s']} CPU s, under the lock {off['locked_ms']} -> {on['locked_ms']} ms"
                )
                off_ms, on_ms = off["median_steps_ms"], on["median_steps_ms"]
                if on_ms:
                    steps = (f"{step} {off_ms.get(step, 0.0)} -> {ms}" for step, ms in on_ms.items())
                    yield "    ms: " + ", ".join(steps)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("partitioned_costs", __doc__)
    add = parser.add_argument
    add("--only", default=",".join(SIDES), help="tidemark, hudi, or both with a comma")
    add("--keys", type=int, default=10_000, help="rows of the first commit; at most 100 000")
    add("--batches", type=numbers, default=[1_000, 10_000], help="rows of a later batch")
    add("--partitions", type=numbers, default=[10, 1_000], help="data partitions")
    add("--shards", type=int, default=1, help="file groups of the index for each partition")
    add("--repeat", type=int, default=9, help="batches of each size")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All cases; returns the report."""
    began = time.perf_counter()
    found: dict[str, Any] = {"conditions": conditions()}
    found |= {"keys": options.keys, "repeat": options.repeat, "shards": options.shards}
    for name, side in (("tidemark", tidemark), ("hudi", hudi)):
        if name in options.only.split(","):
            (work / name).mkdir()
            found[name] = [side(options, partitions, work / name) for partitions in options.partitions]
    found["load_after"], found["took_s"] = load_average(), round(time.perf_counter() - began)
    return found


def main() -> None:
    report("partitioned-costs", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
