"""Look-ups of values through a secondary index: Tidemark's own, Spark's with the index, and Spark's full
scan.

    python -m bench.value_lookups                     1, 100 and 10 000 values in 400 000 rows
    python -m bench.value_lookups --keys 1600000 --values 1,100,10000 --limit-s 600

The table is one of Tidemark's, MERGE_ON_READ, with log files of some epochs in all file groups. Tidemark
answers one value a call: the library function on the table's files, the coordinator by gRPC, and the command
`tidemark lookup`, which starts a process for each value and is asked for one alone. A way that has not asked
for all values after `--limit-s` stops, and how many it asked for is said. Spark answers all values in one
query, `IN (…)`, with data skipping, which asks the index, and without it. The median of `--repeat` rounds,
after one that is not counted unless it takes longer than `--limit-s`, and is the only one then; all files are
in the memory of the machine. Every answer is compared with the rows that the bench itself wrote.
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
from bench.value_rounds import Ask, Rounds, all_keys
from bench.value_rows import COLUMN, ValueWorkload
from bench.whole_run import command_line, numbers, report
from tests.interop.judge import HudiJudge
from tests.interop.spark_session import start_spark
from tidemark.console.admin_client import connect
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.value_lookup import look_up_value
from tidemark.stream_runtime.platform.jars import ensure_jars

SPARK: Final[Mapping[str, bool]] = {"Spark with the index": True, "Spark's full scan": False}
_BATCHES: Final = 10
_BATCH_ROWS: Final = 10_000


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All ways on one table; returns the report."""
    found: dict[str, Any] = {
        name: getattr(options, name) for name in ("keys", "partitions", "per_value", "repeat", "limit_s")
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
        rounds = Rounds(workload, options.values, options.repeat, options.limit_s)
        if "tidemark" in options.only.split(","):
            _tidemark(rounds, run)
        found["verified"] = run.run.command("verify")
        return rounds, run.run.table


def _tidemark(rounds: Rounds, run: OneRun) -> None:
    library: Ask = partial(look_up_value, open_storage(str(run.run.table)))
    rounds.one_by_one("the library", partial(all_keys, library), list(rounds.values))
    with connect(str(run.run.file)) as client:
        rounds.one_by_one("the coordinator", partial(all_keys, client.lookup_value), list(rounds.values))

    def command(text: str) -> list[str]:
        answer = run.run.command("lookup", "--where", f"{COLUMN}={text}")
        return [row["key"] for row in answer["found"]]

    rounds.one_by_one("the command", command, [count for count in rounds.values if count == 1])


def _spark(rounds: Rounds, table: Path, scratch: Path) -> None:
    scratch.mkdir()
    spark = start_spark(ensure_jars("hudi-spark"), scratch, HUDI_HEAP, SPARK_SETTINGS)
    try:
        asked = SparkValues(HudiJudge(spark, scratch), table, COLUMN)
        for way, skipping in SPARK.items():

            def ask(texts: Sequence[str], skipping: bool = skipping) -> tuple[list[str], int]:
                answer = asked.ask(texts, skipping=skipping)
                return answer.keys, answer.files

            rounds.at_once(way, ask)
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
            asked, seconds = one["asked"], one["median_s"]
            told = f"{count} values" if asked == count else f"{asked} of {count} values, then stopped"
            files = f", {one['files']} files read" if "files" in one else ""
            per_value = f"{1e3 * seconds / asked:.2f} ms a value"
            yield f"{way}: {told}: {seconds:.3f} s, {per_value}, {one['rows']} rows{files}"
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
    add("--limit-s", type=float, default=60.0, help="how long one round asks for value after value")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def main() -> None:
    report("value-lookups", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
