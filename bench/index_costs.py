"""What an index costs a commit: the same batches go in turn to a table without it and to one with it.

    python -m bench.index_costs                      Tidemark and Hudi on Spark, about 20 minutes
    python -m bench.index_costs --only tidemark --batches 1000 --repeat 15
    python -m bench.index_costs --only tidemark --secondary ts

The index is column stats, of 13 columns or of all where there are fewer; or a secondary index of one column,
which is made of the empty table. Both tables are served at once, each
by a `tidemark run` of its own with two Spark slots, and take turns, so that whatever else the machine does
disturbs both alike. Of each batch: seconds from the commit of the input to that of the table, and CPU seconds
of all processes of the run over that time, Kafka and Spark among them. Hudi: upserts of Parquet files by one
session with two slots; CPU seconds of its JVM. No table is compacted meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.commit_watch import CommitWatch
from bench.conditions import conditions, load_average
from bench.feeder import BatchFeeder
from bench.hudi_baseline import HudiTable
from bench.hudi_settings import SPARK_SETTINGS
from bench.process_memory import MemorySampler
from bench.tidemark_process import TOPIC, TidemarkRun, configuration
from bench.whole_run import report, say
from bench.wide_rows import WideWorkload, avro_schema
from tests.interop.spark_session import start_spark
from tidemark.stream_runtime.platform.jars import ensure_jars

SIDES: Final = ("tidemark", "hudi")
INDEXED: Final = 13
HUDI_HEAP: Final = "4g"
_WARM_UP: Final = 4
_WARM_UP_ROWS: Final = 1_000
_TIMEOUT_S: Final = 300.0
_OFF: Final = {"enabled": False}


@dataclass
class Taken:
    """What the batches of one size took in one table. `steps_ms`: step -> ms of each epoch."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    steps_ms: dict[str, list[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Medians."""
        steps = {step: round(statistics.median(ms), 1) for step, ms in sorted(self.steps_ms.items())}
        return {
            "median_s": round(statistics.median(self.seconds), 3),
            "median_cpu_s": round(statistics.median(self.cpu_s), 3),
            "seconds": self.seconds,
            "cpu_s": self.cpu_s,
            "median_steps_ms": steps,
        }


def indexed(names: Sequence[str]) -> list[str]:
    """The columns that have stats: the first 13, the partition's column aside where others are enough."""
    others = [name for name in names if name != "region"]
    return (others if len(others) >= INDEXED else list(names))[:INDEXED]


class Side:
    """One table that takes batches: `take` returns seconds, CPU seconds, and the epochs it became."""

    def __init__(self, take: Callable[[Any], tuple[float, float, list[int]]]) -> None:
        self._take = take
        self.taken: dict[int, Taken] = {}

    def batch(self, size: int, rows: Any) -> None:
        """One batch, which is counted among those of this size."""
        seconds, cpu_s, epochs = self._take(rows)
        taken = self.taken.setdefault(size, Taken())
        taken.seconds.append(round(seconds, 3))
        taken.cpu_s.append(round(cpu_s, 3))
        taken.epochs += epochs


def in_turn(sides: Mapping[str, Side], workload: WideWorkload, options: Any, what: str) -> None:
    """Every batch goes to both tables; who is first changes each time."""
    for _ in range(_WARM_UP):
        for side in sides.values():
            side.batch(0, workload.batch(_WARM_UP_ROWS))
    for size in options.batches:
        for number in range(options.repeat):
            rows = workload.batch(size)
            names = list(sides) if number % 2 else list(sides)[::-1]
            for name in names:
                sides[name].batch(size, rows)
        told = ", ".join(f"{name} {side.taken[size].figures()['median_s']} s" for name, side in sides.items())
        say(f"{what}, {size} rows: {told}")


class OneRun:
    """A `tidemark run` of its own."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        workload: WideWorkload,
        stats: Sequence[str],
        secondary: str | None = None,
        index: Mapping[str, Any] | None = None,
    ) -> None:
        """`index`: further keys of `table.index`."""
        settings = configuration("100ms", 4)
        settings["table"]["index"].update(column_stats=list(stats), **(index or {}))
        settings["table_services"] = _OFF
        settings["services"]["web"] = "off"
        self.run = TidemarkRun(folder, settings, avro_schema(workload.schema()))
        if secondary is not None:
            self.run.write_configuration()
            self.run.command("table", "create")
            self.run.command("index", "create", f"by_{secondary}", "--column", secondary)
        stack.enter_context(self.run)
        self._watch = stack.enter_context(CommitWatch(self.run.table, TOPIC))
        # Samples on its thread matter to nobody; each batch is sampled at once.
        self._sampler = MemorySampler(self.run.roles)
        self._feeder = BatchFeeder(self.run.bootstrap, TOPIC, "bench-index-costs")

    def load(self, workload: WideWorkload) -> None:
        """All rows of the workload."""
        _, ends = self._feeder.publish(workload.initial_rows())
        self._watch.wait_for(ends, _TIMEOUT_S)

    def take(self, rows: Any) -> tuple[float, float, list[int]]:
        """As `Side`."""
        before, cpu_s = len(self._watch.commits()), self._cpu_s()
        started_s, ends = self._feeder.publish([rows])
        commit = self._watch.wait_for(ends, _TIMEOUT_S)
        used_s = self._cpu_s() - cpu_s
        return commit.seen_s - started_s, used_s, [each.epoch for each in self._watch.commits()[before:]]

    def add_steps(self, taken: Mapping[int, Taken]) -> None:
        """The steps that coordinator and writer timed."""
        listed = self.run.command("epoch", "list", "--limit", "1000")["epochs"]
        by_number = {each["epoch"]: each for each in listed}
        for of_size in taken.values():
            for number in of_size.epochs:
                for attempt in by_number.get(number, {"attempts": []})["attempts"]:
                    for step, ms in attempt["timings_ms"].items():
                        of_size.steps_ms.setdefault(step, []).append(ms)

    def _cpu_s(self) -> float:
        self._sampler.sample_now()
        return sum(self._sampler.cpu_seconds().values())


def tidemark(options: argparse.Namespace, columns: int, folder: Path) -> dict[str, Any]:
    """Both tables with so many columns; returns off and on -> rows of a batch -> figures."""
    workload = WideWorkload(options.keys, columns, options.seed, options.partitions)
    stats = [] if options.secondary else indexed(workload.schema().names)
    with ExitStack() as stack:
        runs = {
            "off": OneRun(stack, folder / f"off-{columns}", workload, []),
            "on": OneRun(stack, folder / f"on-{columns}", workload, stats, options.secondary),
        }
        for run in runs.values():
            run.load(workload)
        sides = {name: Side(run.take) for name, run in runs.items()}
        in_turn(sides, workload, options, f"Tidemark, {columns} columns")
        for name, run in runs.items():
            run.add_steps(sides[name].taken)
        verified = {name: run.run.command("verify") for name, run in runs.items()}
    index = _told(stats) if options.secondary is None else f"a secondary index of {options.secondary}"
    return {"columns": columns, "index": index, "verified": verified, **_figures(sides)}


def hudi(options: argparse.Namespace, columns: int, folder: Path) -> dict[str, Any]:
    """As `tidemark`, with two tables that one session of Spark writes."""
    workload = WideWorkload(options.keys, columns, options.seed, options.partitions)
    stats = indexed(workload.schema().names)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        spark = start_spark(ensure_jars("hudi-spark"), folder, HUDI_HEAP, SPARK_SETTINGS)
        stack.callback(spark.stop)
        sides: dict[str, Side] = {}
        for name, more in (("off", {}), ("on", _stats_options(stats))):
            (folder / name).mkdir()
            table = HudiTable(spark, folder / f"{name}-table", folder / name, more)
            table.create(workload)
            sides[name] = Side(upserts(table))
        in_turn(sides, workload, options, f"Hudi, {columns} columns")
    return {"columns": columns, "index": _told(stats), **_figures(sides)}


def _told(stats: Sequence[str]) -> str:
    return f"{len(stats)} with stats"


def upserts(table: HudiTable) -> Callable[[Any], tuple[float, float, list[int]]]:
    """As `Side` takes batches, by upserts of one Spark session."""

    def take(rows: Any) -> tuple[float, float, list[int]]:
        cpu_s = table.cpu_seconds()
        return table.upsert(rows, False), table.cpu_seconds() - cpu_s, []

    return take


def _stats_options(columns: Sequence[str]) -> dict[str, str]:
    return {
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.column.stats.column.list": ",".join(columns),
        "hoodie.metadata.index.partition.stats.enable": "false",
    }


def _figures(sides: Mapping[str, Side]) -> dict[str, Any]:
    return {
        name: {size: taken.figures() for size, taken in side.taken.items() if size}
        for name, side in sides.items()
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield (
        f"{found['keys']} rows in {found['partitions']} partitions, MERGE_ON_READ, no compaction; "
        f"batches of 90 % updates, medians of {found['repeat']}; Spark with 2 slots; Hudi's heap {HUDI_HEAP}"
    )
    for side in SIDES:
        for case in found.get(side, []):
            for size, on in case["on"].items():
                off = case["off"][size]
                yield (
                    f"{side}: {case['columns']} columns, {case['index']}, {size} rows: "
                    f"{_beside(off, on, 'median_s', 's')}, {_beside(off, on, 'median_cpu_s', 'CPU s')}"
                )
                yield from _steps(off["median_steps_ms"], on["median_steps_ms"])


def _steps(off: Mapping[str, float], on: Mapping[str, float]) -> Iterator[str]:
    if on:
        yield "    ms: " + ", ".join(f"{step} {off.get(step, 0.0)} -> {ms}" for step, ms in on.items())


def _beside(off: Mapping[str, Any], on: Mapping[str, Any], key: str, unit: str) -> str:
    change = 100 * (on[key] / max(off[key], 1e-9) - 1)
    return f"{off[key]} -> {on[key]} {unit} ({change:+.0f} %)"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.index_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", default=",".join(SIDES), help="tidemark, hudi, or both with a comma")
    add("--keys", type=int, default=200_000, help="rows of the table before the first batch")
    add("--partitions", type=int, default=16, help="of the table, with one file group each")
    add("--batches", type=_numbers, default=[1_000, 10_000, 100_000], help="rows of a batch")
    add("--columns", type=_numbers, default=[3, 32], help="columns of the table")
    add("--secondary", metavar="COLUMN", help="a secondary index of this column; with --only tidemark")
    add("--repeat", type=int, default=9, help="batches of each size")
    add("--seed", type=int, default=17452)
    add("--work", type=Path, help="folder for tables and Kafka; what is made there is removed at the end")
    add("--out", type=Path, help="the report as JSON")
    options = parser.parse_args(argv)
    if options.secondary is not None and options.only != "tidemark":
        parser.error("--secondary goes with --only tidemark")
    return options


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All cases; returns the report."""
    began = time.perf_counter()
    found: dict[str, Any] = {name: getattr(options, name) for name in ("keys", "partitions", "repeat")}
    found["conditions"] = conditions()
    for name, side in (("tidemark", tidemark), ("hudi", hudi)):
        if name in options.only.split(","):
            folder = work / name
            folder.mkdir()
            found[name] = [side(options, columns, folder) for columns in options.columns]
    found["load_after"], found["took_s"] = load_average(), round(time.perf_counter() - began)
    return found


def main() -> None:
    report("index-costs", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
