"""Look-ups of values through a secondary index: Tidemark's own, Spark's with the index, and Spark's full
scan.

    python -m bench.value_lookups                     1, 100 and 10 000 values in 400 000 rows
    python -m bench.value_lookups --keys 1600000 --values 1,100,10000

The table is one of Tidemark's, MERGE_ON_READ, with log files of some epochs in all file groups. Each way
takes all values at once: the library function on the table's files, the coordinator by gRPC, both page by
page; the command `tidemark lookup --where-file`, a process that reads the values from a file and prints the
rows; Spark in one query, `IN (…)`, with data skipping, which asks the index, and without it. The median of
`--repeat` rounds, after one that is not counted; all files are in the memory of the machine. Every answer is
compared with the rows that the bench itself wrote.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.conditions import conditions, load_average
from bench.hudi_settings import SPARK_SETTINGS
from bench.index_costs import HUDI_HEAP
from bench.one_run import OneRun
from bench.spark_values import SparkValues
from bench.value_rounds import Ask, Found, Rounds, all_keys
from bench.value_rows import COLUMN, ValueWorkload
from bench.whole_run import command_line, numbers, report
from tests.interop.judge import HudiJudge
from tests.interop.spark_session import start_spark
from tidemark.console.admin_client import connect
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.value_lookup import look_up_values
from tidemark.stream_runtime.platform.jars import ensure_jars

SPARK: Final[Mapping[str, bool]] = {"Spark with the index": True, "Spark's full scan": False}
_BATCHES: Final = 10
_BATCH_ROWS: Final = 10_000


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All ways on one table; returns the report."""
    found: dict[str, Any] = {
        name: getattr(options, name) for name in ("keys", "partitions", "per_value", "repeat")
    }
    found["conditions"], began_s = conditions(), time.perf_counter()
    workload = ValueWorkload(options.keys, options.per_value, options.seed, options.partitions)
    rounds, table = _served(options, workload, work / "run", found)
    if "spark" in options.only.split(","):
        _spark(rounds, table, work / "spark")
    found["ways"] = rounds.found
    found["load_after"], found["took_s"] = load_average(), round(time.perf_counter() - began_s)
    return found


def _served(
    options: argparse.Namespace, workload: ValueWorkload, folder: Path, found: dict[str, Any]
) -> tuple[Rounds, Path]:
    """Makes the table and asks Tidemark, in a run that has ended on return; the path is the table's."""
    with ExitStack() as stack:
        run = OneRun(stack, folder, workload, [], COLUMN)
        run.load(workload)
        for _ in range(_BATCHES):
            run.take(workload.batch(min(_BATCH_ROWS, options.keys)))
        rounds = Rounds(workload, options.values, options.repeat)
        if "tidemark" in options.only.split(","):
            _tidemark(rounds, run, folder.with_name("values.txt"))
        found["verified"] = run.run.command("verify")
        return rounds, run.run.table


def _tidemark(rounds: Rounds, run: OneRun, scratch: Path) -> None:
    def by_pages(ask: Ask, texts: Sequence[str]) -> Found:
        return all_keys(ask, texts), None

    rounds.ask("the library", partial(by_pages, partial(look_up_values, open_storage(str(run.run.table)))))
    with connect(str(run.run.file)) as client:
        rounds.ask("the coordinator", partial(by_pages, client.lookup_values))

    def command(texts: Sequence[str]) -> Found:
        scratch.write_text("".join(f"{text}\n" for text in texts))
        answer = run.run.command("lookup", "--where-file", f"{COLUMN}={scratch}")
        return [row["key"] for row in answer["found"]], None

    rounds.ask("the command", command)


def _spark(rounds: Rounds, table: Path, scratch: Path) -> None:
    scratch.mkdir()
    spark = start_spark(ensure_jars("hudi-spark"), scratch, HUDI_HEAP, SPARK_SETTINGS)
    try:
        asked = SparkValues(HudiJudge(spark, scratch), table, COLUMN)
        for way, skipping in SPARK.items():

            def find(texts: Sequence[str], skipping: bool = skipping) -> Found:
                answer = asked.ask(texts, skipping=skipping)
                return answer.keys, answer.files

            rounds.ask(way, find)
    finally:
        spark.stop()


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield (
        f"{found['keys']} rows of 4 columns in {found['partitions']} partitions, about {found['per_value']} "
        f"of a value, MERGE_ON_READ, {_BATCHES} epochs of log files; medians of {found['repeat']}; "
        f"Spark with 2 slots, heap {HUDI_HEAP}"
    )
    for way, of_way in found["ways"].items():
        for count, one in of_way.items():
            seconds = one["median_s"]
            files = f", {one['files']} files read" if "files" in one else ""
            per_value = f"{1e3 * seconds / count:.2f} ms a value"
            yield f"{way}: {count} values: {seconds:.3f} s, {per_value}, {one['rows']} rows{files}"
    yield "all answers are the rows that were written"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("value_lookups", __doc__)
    add = parser.add_argument
    add("--only", default="tidemark,spark", help="tidemark, spark, or both with a comma")
    add("--keys", type=int, default=400_000, help="rows of the table before its epochs of updates")
    add("--partitions", type=int, default=16, help="of the table, with one file group each")
    add("--per-value", type=int, default=4, help="rows that share a value of the indexed column")
    add("--values", type=numbers, default=[1, 100, 10_000], help="values of a look-up")
    add("--repeat", type=int, default=3, help="rounds that are counted")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def main() -> None:
    report("value-lookups", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
