"""How long merges take, and how much memory, beside Hudi's on Spark: the same files, one after the other.

    python -m bench.service_merges                          data, then an index of 1, 10 and 30 M entries
    python -m bench.service_merges --entries 1e6 --base-mb 20 --only tidemark

Data: file groups of a base file and log files with Parquet blocks, by `run_compaction`; then those of a table
that Spark wrote, with Avro blocks. Index: a compaction of the metadata table whose log files change an entry
in 1 % or in all of the HFile blocks. Hudi executes a pending plan before a write; what is measured is the
time from the plan's inflight file to its completed file. Both sides have two slots. No case begins after
`--minutes`, and what was left out is told. Tidemark's time is from the first process to the last one's end,
starts of processes included; its memory is the greatest of a process. Of Hudi's JVM the greatest resident
memory is told, and its heap.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa

from bench.conditions import conditions, load_average
from bench.data_tables import ROW_BYTES, DataShape, DataTable
from bench.hudi_baseline import HudiTable
from bench.hudi_settings import SPARK_SETTINGS, settle_options
from bench.merge_tables import IndexTable, merge_operations
from bench.whole_run import report, say
from bench.workload import Workload
from tests.interop.judge import HudiJudge
from tests.interop.spark_session import start_spark
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.ports import IdSource
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_services.operations import CompactionPlan
from tidemark.hudi_format.table_view import TableView
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform.jars import ensure_jars
from tidemark.stream_writer.table_services.bins import BinReport, MergeBin, decode_report, divided, encode_bin
from tidemark.stream_writer.table_services.process_engine import ProcessEngine

SLOTS: Final = 2
SHARES: Final = (0.01, 1.0)
UPDATES: Final = 5
HEAP: Final = "4g"
_INDEX_TIMELINE: Final = ".hoodie/metadata/.hoodie/timeline"
_DATA_TIMELINE: Final = ".hoodie/timeline"

Figures = dict[str, Any]


def tidemark_merges(folder: Path, plan: CompactionPlan, memory_bytes: int) -> Figures:
    """Merges the plan as the executor does; nothing is published."""
    storage = LocalStorage(folder)
    ids: IdSource = SystemIds()
    term = open_publication(storage, SystemClock(), ids).open_term(TermId(1, ids.uuid()))
    token, engine = term.open_service(1), ProcessEngine(SLOTS)
    with tempfile.TemporaryDirectory() as scratch:
        bins = [
            MergeBin(
                base_uri=str(folder),
                token=token,
                instant=plan.instant,
                is_index=plan.is_index,
                schema=plan.schema,
                memory_bytes=memory_bytes,
                scratch=scratch,
                is_nice=False,
                operations=tuple(some),
            )
            for some in divided(plan.operations, SLOTS)
        ]
        before, started = _children_cpu_s(), time.perf_counter()
        reports: list[BinReport] = []
        for first in range(0, len(bins), SLOTS):
            wave = [encode_bin(each) for each in bins[first : first + SLOTS]]
            reports += map(decode_report, engine.run_bins(wave))
        seconds = time.perf_counter() - started
    failures = [each for report in reports for each in report.failures]
    if failures:
        raise RuntimeError(f"{failures[0].error}: {failures[0].message}")
    outcomes = [each for report in reports for each in report.outcomes]
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(_children_cpu_s() - before, 2),
        "peak_mib": max(report.peak_bytes for report in reports) >> 20,
        "rows": sum(each.rows for each in outcomes),
        "read_mb": round(sum(each.base_bytes + each.log_bytes for each in plan.operations) / 1e6, 1),
    }


def index_case(folder: Path, entries: int, share: float, options: argparse.Namespace, spark: Any) -> Figures:
    """One size and share: Tidemark's merge, then Hudi's of the same table."""
    say(f"index of {entries} entries, {share:.0%} of the blocks")
    table = IndexTable(folder, entries)
    changes = table.change(share)
    plan = table.plan()
    found: Figures = {"entries": entries, "share": share, "changes": changes}
    if "tidemark" in options.only:
        found["tidemark"] = tidemark_merges(folder, plan, options.memory)
        say(f"tidemark: {found['tidemark']}")
    if spark is not None:
        judge = HudiJudge(spark, folder.parent)
        # The first write of a process that has not read the table dies behind the compaction, in Hudi 1.2.0.
        judge.snapshot(folder)
        table.request(plan)
        rows = pa.table({"id": ["a row"], "region": ["p0"], "ts": [1]})
        later = {"hoodie.metadata.compact.max.delta.commits": "100000"}
        timeline = folder / _INDEX_TIMELINE
        found["hudi"] = _hudi(spark, timeline, lambda: judge.upsert(folder, rows, later))
        say(f"hudi: {found['hudi']}")
    return found


def data_case(folder: Path, shape: DataShape, options: argparse.Namespace, spark: Any) -> Figures:
    """A table whose log files have Parquet blocks."""
    say(f"{shape.slices} file groups of {shape.rows} rows, {shape.logs} log files of {shape.share:.0%}")
    table = DataTable(folder, shape)
    plan = table.plan()
    found: Figures = {"rows": shape.slices * shape.rows, "blocks": "parquet", "groups": shape.slices}
    found["logs"] = shape.logs
    return _both(found, folder, plan, options, spark, {})


def spark_case(folder: Path, options: argparse.Namespace, spark: Any) -> Figures:
    """A table that Spark writes, with Avro blocks in its log files."""
    say(f"{options.rows} rows, {UPDATES} updates of a tenth, avro blocks")
    folder.mkdir()
    overrides = {"hoodie.logfile.data.block.format": "avro"}
    table = HudiTable(spark, folder / "table", folder, overrides)
    workload = Workload(options.rows)
    table.create(workload)
    for _ in range(UPDATES):
        table.upsert(workload.batch(options.rows // 10), False)
    storage = LocalStorage(table.path)
    view = TableView.load(storage)
    schema = table_schema(storage, read_table_config(storage), view.timeline)
    assert schema is not None
    slices = view.slices(MetadataTableSnapshot.load(storage).files.names())
    times = InstantGenerator(SystemClock())
    plan = CompactionPlan(times.next(), False, schema.avro_json, tuple(merge_operations(storage, slices, "")))
    found: Figures = {"rows": options.rows, "blocks": "avro", "groups": len(plan.operations)}
    found["logs"] = max(len(each.log_files) for each in plan.operations)
    return _both(found, table.path, plan, options, spark, overrides)


def _both(
    found: Figures,
    table: Path,
    plan: CompactionPlan,
    options: argparse.Namespace,
    spark: Any,
    overrides: dict[str, str],
) -> Figures:
    if "tidemark" in options.only:
        found["tidemark"] = tidemark_merges(table, plan, options.memory)
        say(f"tidemark: {found['tidemark']}")
    if spark is not None:
        judge = HudiJudge(spark, table.parent)
        given = {**settle_options(), **overrides}
        found["hudi"] = _hudi(spark, table / _DATA_TIMELINE, lambda: judge.compact(table, given))
        say(f"hudi: {found['hudi']}")
    return found


def _hudi(spark: Any, timeline: Path, run: Callable[[], object]) -> Figures:
    jvm = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
    before = set(timeline.glob("*.commit"))
    cpu = jvm.cpu_times()
    run()
    used = jvm.cpu_times()
    (completed,) = set(timeline.glob("*.commit")) - before
    instant = completed.name.partition("_")[0]
    began = (timeline / f"{instant}.compaction.inflight").stat().st_mtime
    return {
        "seconds": round(completed.stat().st_mtime - began, 2),
        # Of the whole call: the write around the compaction of an index is one row.
        "cpu_seconds": round(used.user + used.system - cpu.user - cpu.system, 2),
        "resident_mib": jvm.memory_info().rss >> 20,
        "heap": HEAP,
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(options: argparse.Namespace, work: Path) -> Figures:
    """All cases; returns the report."""
    spark = None
    if "hudi" in options.only:
        spark = start_spark(ensure_jars("hudi-spark"), work / "spark", HEAP, SPARK_SETTINGS)
    found: Figures = {
        "conditions": conditions(),
        "slots": SLOTS,
        "heap": HEAP,
        "task_memory_mib": options.memory >> 20,
    }
    until = time.monotonic() + options.minutes * 60
    found["left_out"] = []
    for name, kind, case in _cases(options, spark):
        if time.monotonic() > until:
            found["left_out"].append(name)
            continue
        folder = work / "case"
        found.setdefault(kind, []).append(case(folder))
        shutil.rmtree(folder)
    if spark is not None:
        spark.stop()
    found["load_after"] = load_average()
    return found


def _cases(options: argparse.Namespace, spark: Any) -> Iterator[tuple[str, str, Callable[[Path], Figures]]]:
    if options.base_mb:
        rows = options.base_mb * 1_000_000 // ROW_BYTES
        shape = DataShape(options.slices, rows, options.logs, options.log_share)
        yield "data, parquet blocks", "data", lambda folder: data_case(folder, shape, options, spark)
    if spark is not None and options.rows:
        yield "data, avro blocks", "data", lambda folder: spark_case(folder, options, spark)
    for entries in options.entries:
        for share in SHARES:
            yield (
                f"index of {entries} entries, {share:.0%}",
                "index",
                partial(index_case, entries=entries, share=share, options=options, spark=spark),
            )


def lines(found: Figures) -> list[str]:
    """The report as text."""
    memory = found["task_memory_mib"]
    told = [
        f"{found['conditions']}; load after it {found['load_after']}",
        f"both sides: {SLOTS} slots; Tidemark: {memory} MiB for a merge; Hudi: heap {HEAP}",
    ]
    told += [f"left out, time is over: {name}" for name in found["left_out"]]
    for case in found.get("index", ()):
        what = f"index {case['entries'] / 1e6:g} M entries, {case['share']:.0%} of blocks"
        told.append(_compared(what, case))
    for case in found.get("data", ()):
        what = f"{case['rows']} rows in {case['groups']} groups, {case['logs']} log files"
        told.append(_compared(f"{what}, {case['blocks']} blocks", case))
    return told


def _compared(what: str, case: Figures) -> str:
    ours, theirs = case.get("tidemark"), case.get("hudi")
    parts = [f"{what}:"]
    if ours:
        read = ours["read_mb"]
        parts.append(f"{read} MB;")
        parts.append(f"Tidemark {_rates(read, ours)}, peak {ours['peak_mib']} MiB)")
        if theirs:
            parts.append(f"Hudi {_rates(read, theirs)}, resident {theirs['resident_mib']} MiB)")
            wall, cpu = (theirs[each] / max(ours[each], 0.01) for each in ("seconds", "cpu_seconds"))
            parts.append(f"{wall:.1f} x, by CPU {cpu:.1f} x")
    elif theirs:
        parts.append(f"Hudi {theirs}")
    return " ".join(parts)


def _rates(read_mb: float, side: Figures) -> str:
    seconds, cpu = side["seconds"], side["cpu_seconds"]
    return f"{seconds} s ({read_mb / seconds:.0f} MB/s; CPU {cpu} s, {read_mb / max(cpu, 0.01):.0f} MB/CPU s"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.service_merges",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--entries",
        type=_numbers,
        default=[10**6, 10**7, 3 * 10**7],
    )
    add("--slices", type=int, default=8, help="file groups of the data table")
    add("--base-mb", type=int, default=100, help="size of their base files; 0: no such case")
    add("--logs", type=int, default=20, help="log files of each")
    add("--log-share", type=float, default=0.02, help="rows of a log file, in rows of the base file")
    add("--rows", type=_number, default=2 * 10**5, help="rows of the table that Spark writes; 0: none")
    add("--minutes", type=float, default=15, help="no case begins later")
    add("--memory", type=lambda text: int(text) << 20, default=256 << 20, help="task memory in MiB")
    add("--only", default="tidemark,hudi", help="sides, separated by a comma")
    add("--work", type=Path, help="folder for the tables, removed at the end")
    add("--out", type=Path, help="the report as JSON")
    return parser.parse_args(argv)


def _number(text: str) -> int:
    return int(float(text))


def _numbers(text: str) -> list[int]:
    return [int(float(each)) for each in text.split(",") if each]


def main() -> None:
    report("merges", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
