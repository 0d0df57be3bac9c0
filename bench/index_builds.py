"""Making a secondary index while epochs run: how long each hold of the table's lock is, how long the build
takes, and how long a record waits for its commit before, meanwhile and after.

    python -m bench.index_builds                                a small table, two minutes
    python -m bench.index_builds --keys 10000000 --seconds 120

A `tidemark run` with epochs of a second and table services at their defaults gets records at an even pace,
nine in ten of them updates that draw the indexed column anew. Beside it, each in a process of its own: `index
create`, the same again, which makes the index in place of the one that is there, and `index repair`, which
compares it with the rows and takes out `--wrong` entries of rows that nobody has. At the end `tidemark
verify` compares it once more.

A hold is from when the command has the lock until it gives it back. The lock stays in place for up to 200 ms
more, for writers whose clocks differ: that is in no hold. Of a hold: wall time, CPU time of the process, and
syncs of the disk. A hold that only looks finds that something was committed since the last round, and gives
the lock back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.conditions import conditions, load_average
from bench.noted_index_command import longest_ms
from bench.one_run import OneRun
from bench.steady_feed import SteadyFeed
from bench.value_rows import COLUMN, ValueWorkload
from bench.whole_run import command_line, report, say
from bench.wrong_entries import put_wrong_entries
from tidemark.hudi_format.storage.locate import open_storage

NAME: Final = f"by_{COLUMN}"
_CREATE: Final = ("create", NAME, "--column", COLUMN)
_REPAIR: Final = ("repair", NAME)
_WARM_UP_S: Final = 5.0
_TIMEOUT_S: Final = 7_200.0


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All phases on one table; returns the report."""
    found: dict[str, Any] = {
        name: getattr(options, name) for name in ("keys", "partitions", "per_value", "rate", "seconds")
    }
    found["conditions"], began_s = conditions(), time.perf_counter()
    workload = ValueWorkload(options.keys, options.per_value, options.seed, options.partitions)
    with ExitStack() as stack:
        run = OneRun(stack, work / "run", workload, [], interval="1s", services={})
        run.load(workload)
        say(f"{options.keys} rows are loaded")
        with SteadyFeed(run.run, run.watch, workload, options.rate) as feed:
            time.sleep(_WARM_UP_S)
            with feed.phase("before"):
                time.sleep(options.seconds)
            found["commands"] = {}
            for name, arguments in (("create", _CREATE), ("create anew", _CREATE)):
                found["commands"][name] = _command(run, feed, name, arguments)
            put_wrong_entries(open_storage(str(run.run.table)), NAME, options.wrong)
            found["commands"]["repair"] = repair = _command(run, feed, "repair", _REPAIR)
            if (repair["answer"]["missing"], repair["answer"]["extra"]) != (0, options.wrong):
                raise RuntimeError(f"{options.wrong} entries were wrong, and the repair says {repair}")
            with feed.phase("after"):
                time.sleep(options.seconds)
        found["waits"] = feed.figures()
        found["load_after"] = load_average()
        found["verified"] = run.run.command("verify")
    found["took_s"] = round(time.perf_counter() - began_s)
    return found


def _command(run: OneRun, feed: SteadyFeed, name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """One command beside the records; returns its document. It is a phase, without the start of Python."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.noted_index_command", str(run.run.file), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    document: dict[str, Any] = json.loads(done.stdout)
    feed.phases[name] = document["at_s"]
    say(f"{name}: {document['seconds']} s")
    return document


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield (
        f"{found['keys']} rows of 4 columns in {found['partitions']} partitions, about {found['per_value']} "
        f"of a value, MERGE_ON_READ; {found['rate']:.0f} records/s, epochs of 1 s, services at their "
        "defaults; the 200 ms for clocks that differ are in no hold"
    )
    for name, one in found["commands"].items():
        answer = ", ".join(f"{key} {value}" for key, value in one["answer"].items())
        yield f"{name}: {one['seconds']} s ({answer}); the longest hold {longest_ms(one['holds'])} ms"
        for step, holds in one["holds"].items():
            wall, cpu, syncs = (max(of_one) for of_one in zip(*holds, strict=True))
            yield (
                f"    {step}: {len(holds)} holds, at most {wall} ms, {cpu} ms of CPU, {syncs} syncs; "
                f"ms of each: {', '.join(str(hold[0]) for hold in holds)}"
            )
        if one["steps_ms"]:
            steps = ", ".join(f"{step} {ms} ms" for step, ms in one["steps_ms"].items())
            yield f"    steps of switching on: {steps}"
    for name, waits in found["waits"].items():
        if waits["records"]:
            yield (
                f"{name:12} a record waits p50 {waits['p50_s']:.3f} s, p99 {waits['p99_s']:.3f} s, longest "
                f"{waits['max_s']:.3f} s ({waits['records']} records)"
            )
        else:
            yield f"{name:12} no record was produced meanwhile"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("index_builds", __doc__)
    add = parser.add_argument
    add("--keys", type=int, default=200_000, help="rows of the table before the first phase")
    add("--partitions", type=int, default=16, help="of the table")
    add("--per-value", type=int, default=10, help="rows that share a value of the indexed column")
    add("--wrong", type=int, default=1_000, help="entries without a row that the repair finds")
    add("--rate", type=float, default=500.0, help="records a second")
    add("--seconds", type=float, default=20.0, help="length of the phases before and after")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def main() -> None:
    report("index-builds", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
