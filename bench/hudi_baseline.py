"""What Hudi on Spark needs for the benchmark's work: the other side of the comparison, tuned for it.

A MERGE_ON_READ table with a global record index takes upsert batches one by one. Per batch: the time from
"the batch is there" (in Kafka with --kafka, else in a Parquet file) to "the commit is visible". Prints what
was measured, the settings and the machine's state; --out writes the same as JSON.

    python -m bench.hudi_baseline --batches 1000,10000,100000 --moves 0,0.05 --compaction off,on --repeat 5
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.hudi_settings import SPARK_SETTINGS, compaction_options, settle_options, writer_options
from bench.kafka_batches import BatchTopic
from bench.workload import Workload
from tests.interop.judge import HudiJudge
from tests.interop.spark_operations import SparkOperations
from tests.interop.spark_session import start_spark
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import ensure_jars
from tidemark.stream_runtime.platform.java import find_java

WARM_UP_ROWS: Final = 1_000
WARM_UP_BATCHES: Final = 3
# A query for 10 000 keys on 100 000 rows had no answer after a minute.
SQL_LOOKUPS_MAX: Final = 100


@dataclass
class Case:
    """Batches of one kind, one after the other: seconds of each, and CPU seconds of the JVM."""

    rows: int
    move_share: float
    compaction: bool
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        ordered = sorted(self.seconds)
        return {
            **asdict(self),
            "median_s": round(statistics.median(ordered), 3),
            "median_cpu_s": round(statistics.median(self.cpu_seconds), 3),
            "p90_s": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))], 3),
            "rows_per_s": round(self.rows * len(ordered) / sum(ordered)),
        }


class HudiTable:
    """The table under test and the one Spark session that writes it."""

    def __init__(self, spark: Any, table: Path, scratch: Path, overrides: dict[str, str]) -> None:
        self.spark = spark
        self.path = table
        self.judge = HudiJudge(spark, scratch)
        self._scratch = scratch
        self._overrides = overrides
        self._jvm_process = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
        self.topic: BatchTopic | None = None

    def create(self, workload: Workload) -> float:
        """Writes all initial rows by bulk insert; returns seconds."""
        folder = self._scratch / "initial"
        folder.mkdir()
        for number, rows in enumerate(workload.initial_rows()):
            pq.write_table(rows, folder / f"{number:05d}.parquet")
        options = {**writer_options(), **compaction_options(False), **self._overrides}
        started = time.perf_counter()
        self._write(self.spark.read.parquet(str(folder)), "bulk_insert", options)
        seconds = time.perf_counter() - started
        shutil.rmtree(folder)
        return seconds

    def upsert(self, rows: pa.Table, compaction: bool) -> float:
        """One batch; returns the seconds from "the batch is there" to "committed"."""
        options = {**writer_options(), **compaction_options(compaction), **self._overrides}
        read = self._stage(rows)
        started = time.perf_counter()
        self._write(read(), "upsert", options)
        return time.perf_counter() - started

    def create_index(self, column: str) -> None:
        """CREATE INDEX: a secondary index of all rows that are there, which later writes keep."""
        operations = SparkOperations(self.judge, self.path, foreign_writer_options(str(self.path)))
        operations.create_index(f"by_{column}", column)
        operations.close()

    def settle(self, workload: Workload) -> None:
        """Compacts data and metadata table and warms up, so that no case pays for the one before it."""
        options = {**writer_options(), **settle_options(), **self._overrides}
        self.judge.compact(self.path, options)
        self.upsert(workload.batch(min(WARM_UP_ROWS, workload.region_of.size)), False)

    def cpu_seconds(self) -> float:
        """CPU time that the JVM has used so far; a busy machine disturbs it less than the clock."""
        used = self._jvm_process.cpu_times()
        return float(used.user + used.system)

    def lookup_by_index(self, keys: Sequence[str]) -> tuple[float, int]:
        """Locations of `keys` by Hudi's metadata reader inside the JVM. Returns seconds and number found."""
        found, seconds = self.judge.timed_record_locations(self.path, keys)
        return seconds, len(found)

    def lookup_by_sql(self, keys: Sequence[str]) -> tuple[float, int]:
        """Rows of `keys` by a query with data skipping through the record index."""
        options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
        # As text: a list of 10 000 would go through Py4J value by value, which is not Hudi's time.
        condition = "id in (" + ",".join(f"'{key}'" for key in keys) + ")"
        started = time.perf_counter()
        frame = self.spark.read.format("hudi").options(**options).load(str(self.path))
        found = frame.where(condition).select("id", "region").collect()
        return time.perf_counter() - started, len(found)

    def check(self, workload: Workload) -> None:
        """Raises when the table is not what the workload put there: a fast wrong answer is no baseline."""
        counted = {
            row["region"]: row["count"]
            for row in self.spark.read.format("hudi").load(str(self.path)).groupBy("region").count().collect()
        }
        wanted = np.bincount(workload.region_of, minlength=workload.partitions)
        for number, expected in enumerate(wanted.tolist()):
            found = counted.get(f"p{number:02d}", 0)
            if found != expected:
                raise RuntimeError(f"{self.path}: partition p{number:02d} has {found} rows, not {expected}")

    def _stage(self, rows: pa.Table) -> Callable[[], Any]:
        topic = self.topic
        if topic is not None:
            ranges = topic.publish(rows)
            return lambda: topic.frame(self.spark, ranges, rows.schema)
        target = self._scratch / "batch.parquet"
        pq.write_table(rows, target)
        return lambda: self.spark.read.schema(_spark_schema(rows.schema)).parquet(str(target))

    def _write(self, frame: Any, operation: str, options: dict[str, str]) -> None:
        writer = frame.write.format("hudi").options(**options)
        writer.option("hoodie.datasource.write.operation", operation).mode("append").save(str(self.path))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All cases on one table; returns the report."""
    work = Path(tempfile.mkdtemp(prefix="hudi-baseline-", dir=arguments.work))
    jars = ensure_jars("hudi-spark") + (ensure_jars("spark-kafka") if arguments.kafka else [])
    overrides, spark_overrides = _split_settings(arguments.set)
    report: dict[str, Any] = {
        "engine": "hudi-1.2.0-spark-3.5.7",
        "before": _conditions(),
        "keys": arguments.keys,
        "source": "kafka" if arguments.kafka else "parquet",
        "spark": {**SPARK_SETTINGS, **spark_overrides},
        "hudi": {**writer_options(), **overrides},
    }
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        bootstrap = arguments.kafka
        if bootstrap == "embedded":
            broker = EmbeddedKafka(work / "kafka", ensure_jars("kafka"), find_java().home)
            bootstrap = stack.enter_context(broker).bootstrap_servers
        spark = start_spark(jars, work, arguments.memory, {**SPARK_SETTINGS, **spark_overrides})
        stack.callback(spark.stop)
        table = HudiTable(spark, work / "table", work, overrides)
        workload = Workload(arguments.keys, seed=arguments.seed)
        report["create_s"] = round(table.create(workload), 1)
        _say(f"{arguments.keys} keys made in {report['create_s']} s")
        if bootstrap:
            table.topic = BatchTopic(bootstrap, f"hudi-baseline-{os.getpid()}")
        for _ in range(WARM_UP_BATCHES):
            table.upsert(workload.batch(min(WARM_UP_ROWS, arguments.keys)), False)
        report["cases"] = [case.summary() for case in _measure_cases(arguments, table, workload)]
        table.check(workload)
        if arguments.lookups:
            report["lookups"] = _measure_lookups(arguments.lookups, table, workload)
        report["after"] = _conditions()
        return report


def _measure_cases(arguments: argparse.Namespace, table: HudiTable, workload: Workload) -> list[Case]:
    cases = [
        Case(rows, share, compaction)
        for compaction in arguments.compaction
        for share in arguments.moves
        for rows in arguments.batches
    ]
    for case in cases:
        table.settle(workload)
        until_s = time.perf_counter() + arguments.seconds
        while len(case.seconds) < arguments.repeat or time.perf_counter() < until_s:
            batch, cpu_before = workload.batch(case.rows, case.move_share), table.cpu_seconds()
            seconds = table.upsert(batch, case.compaction)
            case.seconds.append(round(seconds, 3))
            case.cpu_seconds.append(round(table.cpu_seconds() - cpu_before, 2))
            kind = f"{case.move_share:.0%} moved, compaction {'on' if case.compaction else 'off'}"
            _say(f"{case.rows} rows, {kind}: {seconds:.2f} s")
    return cases


def _measure_lookups(count: int, table: HudiTable, workload: Workload) -> dict[str, Any]:
    measured: dict[str, Any] = {"keys": count, "sql_keys": min(count, SQL_LOOKUPS_MAX)}
    kinds = (
        ("index", table.lookup_by_index, count),
        ("sql", table.lookup_by_sql, min(count, SQL_LOOKUPS_MAX)),
    )
    for name, look_up, count in kinds:
        seconds = []
        for _ in range(3):
            took, found = look_up(workload.sample_keys(count))
            if found != count:
                raise RuntimeError(f"lookup by {name} found {found} of {count} keys")
            seconds.append(round(took, 3))
        measured[f"{name}_s"] = seconds
        _say(f"{count} lookups by {name}: {seconds}")
    return measured


def _conditions() -> dict[str, Any]:
    return {
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def _spark_schema(schema: pa.Schema) -> str:
    names = {"string": "string", "int64": "bigint", "int32": "int", "double": "double"}
    return ", ".join(f"{each.name} {names[str(each.type)]}" for each in schema)


def _split_settings(pairs: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    settings = dict(pair.split("=", 1) for pair in pairs)
    hudi = {key: value for key, value in settings.items() if key.startswith("hoodie.")}
    return hudi, {key: value for key, value in settings.items() if key not in hudi}


def _say(text: str) -> None:
    print(f"hudi: {text}", flush=True)


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(each) for each in text.split(",")]


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m bench.hudi_baseline", description=__doc__)
    parser.add_argument(
        "--keys", type=int, default=1_000_000, help="rows of the table before the first batch"
    )
    parser.add_argument(
        "--batches", type=_numbers(int), default=[1_000, 10_000, 100_000], help="rows of a batch"
    )
    parser.add_argument(
        "--moves", type=_numbers(float), default=[0.0, 0.05], help="shares of updates that move"
    )
    parser.add_argument(
        "--compaction", type=_numbers(lambda each: each == "on"), default=[False], help="off,on"
    )
    parser.add_argument("--repeat", type=int, default=5, help="batches of each kind")
    parser.add_argument("--seconds", type=float, default=0.0, help="batches go on for at least so long")
    parser.add_argument("--lookups", type=int, default=10_000, help="random keys to look up; 0 = none")
    parser.add_argument(
        "--kafka", help="bootstrap servers (or: embedded) of a Kafka that batches are read from"
    )
    parser.add_argument("--memory", default="4g", help="JVM heap")
    parser.add_argument("--seed", type=int, default=17452)
    parser.add_argument("--work", help="folder for the table; it is removed at the end")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="hoodie.* or spark.* setting"
    )
    parser.add_argument("--out", type=Path, help="file for the JSON report")
    return parser.parse_args(argv)


def main() -> None:
    arguments = parse_arguments()
    report = run(arguments)
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
