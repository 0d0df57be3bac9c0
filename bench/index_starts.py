"""Starts, restarts, takeovers: how long until records are committed again, and until they are at full rate.

    python -m bench.index_starts                                    1 000 000 keys, about ten minutes
    python -m bench.index_starts --keys 10000000 --backlog 2000000
    python -m bench.index_starts --only undisturbed,lost-disk
    python -m bench.index_starts --keys 10000000 --table /big/starts --only undisturbed
    python -m bench.index_starts --keys 10000000 --table /big/starts --full-rate 40000 --only cold-start

One table in one `tidemark run`, with epochs of a second and table services that act often. In each case
something happens, and at the same moment a backlog of upserts appears (nine in ten of random keys of the
table). Counted are records of commits, as the table's timeline shows them. "Full rate" is that of the case
`undisturbed`; 90 % of it are reached at the first commit from which on as many are committed for five
seconds, or until the backlog is done. Lanes have moved when another process holds them afterwards, by
`tidemark status`. In `foreign-commit` Hudi on Spark has just committed an upsert of 10 000 rows, in a
process that has ended when the backlog appears. `cold-start` and `warm-start` stop all services, Kafka among
them, and count from the new start on; the other cases count from the kill.

With ``--table`` the table is loaded once, and stays there with Kafka, caches and all for the next call, which
may measure other cases.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from bench.commit_watch import CommitWatch, SeenCommit
from bench.conditions import conditions, load_average
from bench.feeder import BatchFeeder
from bench.hudi_settings import INDEX_SHARDS, SPARK_SETTINGS
from bench.process_memory import MemorySampler, merged_peaks
from bench.service_epochs import SHORT
from bench.tidemark_process import COMMAND, TOPIC, TidemarkRun, configuration
from bench.tidemark_side import TidemarkSide
from bench.whole_run import command_line, report, say
from bench.workload import Workload
from tests.interop.judge import HudiJudge
from tests.interop.spark_session import start_spark
from tidemark.console.admin_client import connect
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform import child
from tidemark.stream_runtime.platform.jars import ensure_jars

WINDOW_S: Final = 5.0
SHARE: Final = 0.9
_CHUNK_ROWS: Final = 100_000
_FOREIGN_ROWS: Final = 10_000
_TIMEOUT_S: Final = 900.0
_STOP_S: Final = 60.0
_CACHES: Final = "index-*"
_KEPT: Final = "workload.npz"
SERVICES: Final[Mapping[str, Mapping[str, Any]]] = {"short": SHORT, "default": {}}
"""Name -> `table_services` of the table."""

Counts = Sequence[tuple[float, int]]
"""(seconds since the event, records) of each commit, in their order."""


def rate_from(counts: Counts, first: int) -> float:
    """Records a second from commit ``first`` on, over `WINDOW_S`, or less where the backlog ends before."""
    begin_s = counts[first][0]
    behind = counts[first + 1 :]
    within = [one for one in behind if one[0] - begin_s <= WINDOW_S] or list(behind[:1])
    return sum(records for _, records in within) / (within[-1][0] - begin_s) if within else 0.0


def plateau(counts: Counts) -> float:
    """The median of the rates from each commit on."""
    return float(np.median([rate_from(counts, at) for at in range(max(len(counts) - 1, 1))]))


def seconds_to_rate(counts: Counts, wanted: float) -> float | None:
    """When the rate is reached that ``wanted`` names, in seconds since the event. None: not at all."""
    reached = (at for at in range(len(counts) - 1) if rate_from(counts, at) >= wanted)
    first = next(reached, None)
    return None if first is None else counts[first][0]


@dataclass(frozen=True)
class Measured:
    """One case, by its commits."""

    counts: Counts
    moved_lanes: int = 0

    def figures(self, full: float) -> dict[str, Any]:
        """What is reported. ``silence_s``: the longest time without a commit."""
        times = [0.0, *(seconds for seconds, _ in self.counts)]
        reached = seconds_to_rate(self.counts, SHARE * full)
        return {
            "first_s": round(times[1], 2),
            "full_s": None if reached is None else round(reached, 2),
            "silence_s": round(max(later - one for one, later in pairwise(times)), 2),
            "records": sum(records for _, records in self.counts),
            "seconds": round(times[-1], 2),
            "rate": round(plateau(self.counts)),
            "moved_lanes": self.moved_lanes,
        }


class Table:
    """The table, its run, and what happens to it. Use as a context manager."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        settings = {**configuration("1s", options.lanes), "table_services": SERVICES[options.services]}
        settings["table"]["index"]["shards"] = options.shards
        self._run, self._options = TidemarkRun(folder, settings), options
        self._kept = folder / _KEPT
        self._loaded = self._kept.is_file()
        self._workload = (
            Workload.kept(self._kept) if self._loaded else Workload(options.keys, seed=options.seed)
        )
        self._stack = ExitStack()
        self._samplers: list[MemorySampler] = []
        self._joined: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Table:
        self._start()
        if not self._loaded:
            say(f"loading: {TidemarkSide(self._run, self._watch, self._workload, 1.0).load()}")
            self._workload.keep(self._kept)
        self._await_lanes()
        return self

    def __exit__(self, *_: object) -> None:
        self._workload.keep(self._kept)
        self._leave()
        self._stack.close()

    def _start(self) -> None:
        self._stack.enter_context(self._run)
        self._samplers.append(self._stack.enter_context(MemorySampler(self._run.roles)))
        self._watch = self._stack.enter_context(CommitWatch(self._run.table, TOPIC))
        self._feeder = BatchFeeder(self._run.bootstrap, TOPIC, "bench-starts")

    def _await_lanes(self) -> None:
        """A run on a kept table has loaded nothing when it is first asked: it may not be up yet."""
        until_s = time.perf_counter() + _TIMEOUT_S
        while time.perf_counter() < until_s:
            with suppress(RuntimeError):
                if len(self._holders()) == self._options.lanes:
                    return
            time.sleep(1.0)
        raise TimeoutError(f"not every lane has an assigner after {_TIMEOUT_S} s")

    def measure(self, case: str) -> Measured:
        """One case of `CASES`; waits until its backlog is committed."""
        before = self._holders()
        measured, after = self._measured(case), self._holders()
        return replace(measured, moved_lanes=sum(after.get(lane) != one for lane, one in before.items()))

    def _holders(self) -> dict[str, str]:
        """The assigner process that holds each lane."""
        slots = self._run.command("status")["services"]["assign"]
        return {lane: slot["process"] for slot in slots for lane in slot["lanes"]}

    def _measured(self, case: str) -> Measured:
        if case in ("cold-start", "warm-start"):
            return self._restarted(cold=case == "cold-start")
        if case == "foreign-commit":
            self._commit_by_spark()
        before = CASES[case]
        started_s, ends = self._feeder.publish(self._backlog(), lambda: before(self))
        last = self._watch.wait_for(ends, _TIMEOUT_S)
        return self._counted(started_s, last)

    def _commit_by_spark(self) -> None:
        """Upserts rows by another engine, which has the options that Tidemark asks of other writers."""
        rows = self._run.folder / "foreign.parquet"
        pq.write_table(self._workload.batch(_FOREIGN_ROWS), rows)
        process = multiprocessing.get_context("spawn").Process(
            target=upsert_by_spark, args=(self._run.table, rows, self._run.folder)
        )
        process.start()
        process.join(_TIMEOUT_S)
        if process.exitcode != 0:
            raise RuntimeError(f"Spark's upsert ended with code {process.exitcode}")

    def _restarted(self, cold: bool) -> Measured:
        _, ends = self._feeder.publish(self._backlog())
        self._stack.close()
        if cold:
            for cache in self._caches():
                shutil.rmtree(cache)
        started_s = time.perf_counter()
        self._start()
        last = self._watch.wait_for(ends, _TIMEOUT_S)
        return self._counted(started_s, last)

    def _counted(self, started_s: float, last: SeenCommit) -> Measured:
        # A watch that begins sees all commits of the table at once: those are no commits of the case.
        commits = [one for one in self._watch.commits() if one.epoch > self._epoch_before(started_s)]
        return Measured(
            [
                (one.seen_s - started_s, int(one.records["input"]))
                for one in commits
                if one.seen_s <= last.seen_s
            ]
        )

    def _epoch_before(self, started_s: float) -> int:
        first_s = min(one.seen_s for one in self._watch.commits())
        old_s = max(started_s, first_s)
        return max((one.epoch for one in self._watch.commits() if one.seen_s <= old_s), default=0)

    def _backlog(self) -> Iterator[Any]:
        for _ in range(max(self._options.backlog // _CHUNK_ROWS, 1)):
            yield self._workload.batch(min(_CHUNK_ROWS, self._options.backlog))

    def _caches(self) -> list[Path]:
        return sorted(each for each in (self._run.folder / "state").glob(_CACHES) if each.is_dir())

    def anonymous_mib(self) -> dict[str, int]:
        """Greatest anonymous memory (RssAnon) of each role so far, in MiB."""
        return merged_peaks(sampler.anonymous_mib() for sampler in self._samplers)

    def verify(self) -> Any:
        """What `tidemark verify` says of the table."""
        return self._run.command("verify")

    # ------------------------------------------------------------------ what happens

    def nothing(self) -> None:
        """The case that the others are compared with."""

    def kill_assigner(self) -> None:
        """The run starts it again, on the same cache folder."""
        for pid in self._run.roles().get("assigner", []):
            os.kill(pid, signal.SIGKILL)

    def lose_disk(self) -> None:
        """The assigner is killed, and its cache folder is gone when it starts again."""
        caches = self._caches()
        for cache in caches:
            cache.rename(cache.with_name(f"lost-{cache.name}"))
        self.kill_assigner()
        for cache in caches:
            shutil.rmtree(cache.with_name(f"lost-{cache.name}"))

    def compact_index(self) -> None:
        """An MDT compaction is planned now."""
        with connect(str(self._run.file)) as client:
            client.run_service("compact-index")

    def join(self) -> None:
        """A second assigner starts, with an empty cache folder of its own."""
        arguments = [*COMMAND, "assigner", "-c", str(self._run.file)]
        self._joined = child.spawn(arguments, self._run.folder / "joined.log")

    def take_over(self) -> None:
        """The second assigner is killed; nobody starts it again."""
        if self._joined is None:
            self.join()
            time.sleep(WINDOW_S)
        if self._joined is not None:
            self._joined.kill()

    def _leave(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            child.end(joined, SystemClock(), _STOP_S)


def upsert_by_spark(table: Path, rows: Path, scratch: Path) -> None:
    """Writes the Parquet file's rows with Hudi on Spark. In a process of its own: its JVM ends with it."""
    spark = start_spark(ensure_jars("hudi-spark"), scratch, "4g", SPARK_SETTINGS)
    judge = HudiJudge(spark, scratch)
    judge.write_as_told(table, pq.read_table(rows), "upsert", foreign_writer_options(str(table)))
    spark.stop()


CASES: Final[Mapping[str, Callable[[Table], None]]] = {
    "undisturbed": Table.nothing,
    "warm-restart": Table.kill_assigner,
    "lost-disk": Table.lose_disk,
    "compaction": Table.compact_index,
    "joining": Table.join,
    "takeover": Table.take_over,
    "warm-start": Table.nothing,
    "cold-start": Table.nothing,
    "foreign-commit": Table.nothing,
}


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All cases; returns the report."""
    found: dict[str, Any] = {"conditions": conditions(), "keys": options.keys, "cases": {}}
    wanted = options.only.split(",")
    if unknown := set(wanted) - CASES.keys():
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    with Table(options.table or work / "starts", options) as table:
        full = options.full_rate or _full_rate(table)
        found["full_rate"] = round(full)
        for case in CASES:
            if case in wanted:
                found["cases"][case] = figures = table.measure(case).figures(full)
                say(f"{case}: {figures}")
        found["anonymous_mib"] = table.anonymous_mib()
        found["verified"] = table.verify() if options.verify else None
    found["load_after"] = load_average()
    return found


def _full_rate(table: Table) -> float:
    """Records a second when nothing happens; the first backlog warms up."""
    table.measure("undisturbed")
    return plateau(table.measure("undisturbed").counts)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield f"{found['keys']} keys; undisturbed {found['full_rate']} records/s, table services on"
    yield f"RssAnon at most, MiB: {found['anonymous_mib']}"
    for case, one in found["cases"].items():
        full = "not reached" if one["full_s"] is None else f"{one['full_s']:7.2f} s"
        yield (
            f"{case:14} first commit {one['first_s']:7.2f} s, {SHARE:.0%} of the rate {full}, "
            f"longest silence {one['silence_s']:6.2f} s, {one['records']} records in {one['seconds']:.1f} s, "
            f"{one['moved_lanes']} lanes moved"
        )


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("index_starts", __doc__)
    add = parser.add_argument
    add("--keys", type=int, default=1_000_000, help="rows of the table before the first case")
    add("--only", default=",".join(CASES), help=f"cases, separated by commas: {', '.join(CASES)}")
    add("--backlog", type=int, default=500_000, help="upserts that appear in each case")
    add("--shards", type=int, default=INDEX_SHARDS, help="shards of the record index")
    add("--lanes", type=int, default=4, help="index.lanes")
    add("--services", choices=list(SERVICES), default="short", help="table services often, or as by default")
    add("--table", type=Path, help="folder of the table, loaded if it is not there, and kept")
    add("--full-rate", type=float, help="records/s of the case undisturbed, as an earlier call found them")
    add("--verify", action=argparse.BooleanOptionalAction, default=True, help="verify the table at the end")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def main() -> None:
    report("index-starts", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
