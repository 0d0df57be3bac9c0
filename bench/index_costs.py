"""What an index costs a commit: the same batches go in turn to a table without it and to one with it.

    python -m bench.index_costs                      Tidemark and Hudi on Spark, about 20 minutes
    python -m bench.index_costs --only tidemark --batches 1000 --repeat 15
    python -m bench.index_costs --secondary ts --keys 400000 --columns 3

The index is column stats, of 13 columns or of all where there are fewer; or a secondary index of one column.
Both tables are served at once, each by a `tidemark run` of its own with two Spark slots, and take turns, so
that whatever else the machine does disturbs both alike. Of each batch: seconds from the commit of the input
to that of the table, and CPU seconds of all processes of the run over that time, Kafka and Spark among them.
Hudi: upserts of Parquet files by one session with two slots; CPU seconds of its JVM. No table is compacted
meanwhile. Slices of Tidemark are what the epochs of the load left, a base file and log files; with
`--compacted` one base file each. With `--made` they are written as files, for tables of tens of millions of
rows: each slice is one base file, and the index is made of the rows.

A secondary index is made of the empty table, in Hudi by CREATE INDEX when all rows are there. At the end
`tidemark verify` compares it with the rows; Hudi's has to find the rows of one more batch's first value as a
full scan does. All rows of a batch have one `ts`, so their new entries go to one file group of an index of
`ts`; other columns draw each row anew.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.conditions import conditions, load_average
from bench.hudi_baseline import HudiTable
from bench.hudi_settings import INDEX_SHARDS, SPARK_SETTINGS
from bench.made_rows import MadeRows
from bench.one_run import NO_SERVICES, OneRun
from bench.spark_values import SparkValues
from bench.tidemark_process import TABLE
from bench.turns import Side, in_turn, upserts
from bench.whole_run import command_line, numbers, report, say
from bench.wide_rows import WideWorkload
from tests.interop.spark_session import start_spark
from tidemark.hudi_format.schema import TableSchema
from tidemark.stream_runtime.platform.jars import ensure_jars

SIDES: Final = ("tidemark", "hudi")
INDEXED: Final = 13
HUDI_HEAP: Final = "4g"
_CHECKED_ROWS: Final = 1_000


def indexed(names: Sequence[str]) -> list[str]:
    """The columns that have stats: the first 13, the partition's column aside where others are enough."""
    others = [name for name in names if name != "region"]
    return (others if len(others) >= INDEXED else list(names))[:INDEXED]


def tidemark(options: argparse.Namespace, columns: int, folder: Path) -> dict[str, Any]:
    """Both tables with so many columns; returns off and on -> rows of a batch -> figures."""
    workload = WideWorkload(options.keys, columns, options.seed, options.partitions)
    stats = [] if options.secondary else indexed(workload.schema().names)
    services: Mapping[str, Any] = {} if options.compacted else NO_SERVICES
    made = _made_rows(workload) if options.made else None
    with ExitStack() as stack:
        runs: dict[str, OneRun] = {}
        for name, listed, secondary in (("off", [], None), ("on", stats, options.secondary)):
            place = folder / f"{name}-{columns}"
            runs[name] = OneRun(stack, place, workload, listed, secondary, services=services, made=made)
            say(f"Tidemark, {columns} columns: the table {name} is there")
        for run in runs.values():
            if made is not None:
                run.warm()
            else:
                run.load(workload)
            if options.compacted:
                run.compact()
        sides = {name: Side(run.take) for name, run in runs.items()}
        in_turn(sides, workload, options, f"Tidemark, {columns} columns")
        for name, run in runs.items():
            run.add_steps(sides[name].taken)
        verified = {name: run.run.command("verify") for name, run in runs.items()}
    return {"columns": columns, "index": _told(options, stats), "verified": verified, **_figures(sides)}


def _made_rows(workload: WideWorkload) -> MadeRows:
    return MadeRows(workload, TableSchema.from_arrow(TABLE, workload.schema()), INDEX_SHARDS)


def hudi(options: argparse.Namespace, columns: int, folder: Path) -> dict[str, Any]:
    """As `tidemark`, with two tables that one session of Spark writes."""
    workload = WideWorkload(options.keys, columns, options.seed, options.partitions)
    stats = indexed(workload.schema().names)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        spark = start_spark(ensure_jars("hudi-spark"), folder, HUDI_HEAP, SPARK_SETTINGS)
        stack.callback(spark.stop)
        sides: dict[str, Side] = {}
        for name, more in (("off", {}), ("on", {} if options.secondary else _stats_options(stats))):
            (folder / name).mkdir()
            table = HudiTable(spark, folder / f"{name}-table", folder / name, more)
            table.create(workload)
            sides[name] = Side(upserts(table))
        if options.secondary:  # the last of both tables
            table.create_index(options.secondary)
        in_turn(sides, workload, options, f"Hudi, {columns} columns")
        checked = _check_index(table, options.secondary, workload) if options.secondary else {}
    return {"columns": columns, "index": _told(options, stats), **checked, **_figures(sides)}


def _check_index(table: HudiTable, column: str, workload: WideWorkload) -> dict[str, Any]:
    """One more batch; the rows of its first value as the index finds them. Raises RuntimeError where a scan
    finds others, and where the index is not asked: then files are read for a value that no row has.
    """
    rows = workload.batch(_CHECKED_ROWS)
    table.upsert(rows, False)
    asked, value = SparkValues(table.judge, table.path, column), rows[column][0].as_py()
    found, scanned = (asked.ask([value], skipping=way) for way in (True, False))
    nobodys = "nobody has it" if isinstance(value, str) else -1
    if files := asked.ask([nobodys], skipping=True).files:
        raise RuntimeError(f"{table.path}: {files} files are read for a value that the index has not")
    if found.keys != scanned.keys or not found.keys:
        raise RuntimeError(
            f"{table.path}: {len(found.keys)} rows by the index of {column}, {len(scanned.keys)} by a scan"
        )
    return {"checked_rows": len(found.keys), "files_read": found.files, "files_scanned": scanned.files}


def _told(options: argparse.Namespace, stats: Sequence[str]) -> str:
    if options.secondary:
        return f"a secondary index of {options.secondary}"
    return f"{len(stats)} with stats"


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
        f"{found['keys']} rows in {found['partitions']} partitions, MERGE_ON_READ, no compaction"
        f"{', but of all slices of Tidemark before the first batch' if found['compacted'] else ''}"
        f"{', rows written as files' if found['made'] else ''}; "
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
            if "checked_rows" in case:
                yield (
                    f"{side}: the index found {case['checked_rows']} rows of a value in "
                    f"{case['files_read']} of {case['files_scanned']} files, as a full scan did"
                )


def _steps(off: Mapping[str, float], on: Mapping[str, float]) -> Iterator[str]:
    if on:
        yield "    ms: " + ", ".join(f"{step} {off.get(step, 0.0)} -> {ms}" for step, ms in on.items())


def _beside(off: Mapping[str, Any], on: Mapping[str, Any], key: str, unit: str) -> str:
    change = 100 * (on[key] / max(off[key], 1e-9) - 1)
    return f"{off[key]} -> {on[key]} {unit} ({change:+.0f} %)"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("index_costs", __doc__)
    add = parser.add_argument
    add("--only", default=",".join(SIDES), help="tidemark, hudi, or both with a comma")
    add("--keys", type=int, default=200_000, help="rows of the table before the first batch")
    add("--partitions", type=int, default=16, help="of the table, with one file group each")
    add("--batches", type=numbers, default=[1_000, 10_000, 100_000], help="rows of a batch")
    add("--columns", type=numbers, default=[3, 32], help="columns of the table")
    add("--secondary", metavar="COLUMN", help="a secondary index of this column instead of stats")
    add("--compacted", action="store_true", help="Tidemark's slices are one base file before the first batch")
    add("--made", action="store_true", help="Tidemark's rows are written as files; not for column stats")
    add("--repeat", type=int, default=9, help="batches of each size")
    add("--seed", type=int, default=17452)
    chosen = parser.parse_args(argv)
    if chosen.made and (chosen.secondary is None or "hudi" in chosen.only):
        parser.error("--made: only with --secondary and --only tidemark")
    return chosen


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All cases; returns the report."""
    began = time.perf_counter()
    found: dict[str, Any] = {
        name: getattr(options, name) for name in ("keys", "partitions", "repeat", "compacted", "made")
    }
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
