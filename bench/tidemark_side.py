"""Tidemark's side of the benchmark: one `tidemark run`, fed through Kafka, judged by the table's timeline."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import table_check, tidemark_lookups
from bench.commit_watch import CommitWatch, SeenCommit
from bench.feeder import PARTITIONS, BatchFeeder, SteadyFeeder, Trickle, json_records
from bench.loading import load
from bench.process_memory import MemorySampler
from bench.tidemark_process import TOPIC, TidemarkRun
from bench.workload import CHUNK_ROWS, Workload

_LOAD_TIMEOUT_S: Final = 900.0
_BATCH_TIMEOUT_S: Final = 120.0
_WARM_UP_BATCHES: Final = 5
_TRICKLE_BATCH: Final = 1_000

Say = Callable[[str], None]


@dataclass
class BatchCase:
    """Batches of one kind, one after the other: seconds from commit of the input to commit of the table."""

    rows: int
    move_share: float
    seconds: list[float] = field(default_factory=list)
    epochs: list[list[int]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "move_share": self.move_share,
            "seconds": self.seconds,
            "median_s": round(statistics.median(self.seconds), 3),
            "rows_per_s": round(self.rows * len(self.seconds) / sum(self.seconds)),
            "epochs": self.epochs,
        }


class TidemarkSide:
    """One table in one run. `interval_s` is the configured epoch interval."""

    def __init__(self, run: TidemarkRun, watch: CommitWatch, workload: Workload, interval_s: float) -> None:
        self._run = run
        self._watch = watch
        self._workload = workload
        self._interval_s = interval_s
        # Batches arrive at no particular moment of the epoch interval.
        self._random = random.Random(17452)
        self._batches = BatchFeeder(run.bootstrap, TOPIC, "bench-batches")

    def load(self) -> dict[str, Any]:
        """All keys through the pipeline into the empty table."""
        rows, before = int(self._workload.region_of.size), len(self._watch.commits())
        seconds = load(self._batches, self._watch, self._workload)
        commits = self._watch.commits()[before:]
        return {
            "rows": rows,
            "seconds": round(seconds, 2),
            "rows_per_s": round(rows / seconds),
            "epochs": len(commits),
        }

    def batches(
        self, sizes: Sequence[int], shares: Sequence[float], repeat: int, say: Say
    ) -> list[BatchCase]:
        """Every kind of batch, `repeat` times each."""
        for _ in range(_WARM_UP_BATCHES):
            self._measure([self._workload.batch(1_000)], _BATCH_TIMEOUT_S)
        cases = [BatchCase(rows, share) for share in shares for rows in sizes]
        for case in cases:
            for _ in range(repeat):
                batch = self._workload.batch(case.rows, case.move_share)
                time.sleep(self._random.uniform(0, self._interval_s))
                seconds, commits = self._measure([batch], _BATCH_TIMEOUT_S)
                case.seconds.append(round(seconds, 3))
                case.epochs.append([commit.epoch for commit in commits])
                say(f"{case.rows} rows, {case.move_share:.0%} moved: {seconds:.3f} s, {len(commits)} epochs")
        return cases

    def sustained(self, records: int, seconds: float) -> dict[str, Any]:
        """A backlog of `records` upserts appears at once; what was committed of it within the time."""
        before = self._watch.commits()[-1]
        chunks = (self._workload.batch(CHUNK_ROWS) for _ in range(records // CHUNK_ROWS))
        started_s, ends = self._batches.publish(chunks)
        time.sleep(max(started_s + seconds - time.perf_counter(), 0.0))
        commits = [commit for commit in self._watch.commits() if commit.epoch > before.epoch]
        in_time = [commit for commit in commits if commit.seen_s <= started_s + seconds]
        done = sum(_count(commit) for commit in in_time)
        took_s = in_time[-1].seen_s - started_s
        self._watch.wait_for(ends, _LOAD_TIMEOUT_S)
        return {
            "backlog_records": records // CHUNK_ROWS * CHUNK_ROWS,
            "records": done,
            "seconds": round(took_s, 2),
            "records_per_s": round(done / took_s),
            "epochs": len(in_time),
        }

    def latency(self, rate: float, seconds: float) -> dict[str, Any]:
        """Single records at an even pace: from `produce` to the commit that holds each."""
        batches = max(round(rate * seconds / _TRICKLE_BATCH), 1)
        # Rows of one batch share their ordering value and no key is twice in it; two batches may change
        # places between the topic's partitions, which the ordering value settles.
        records = [
            each for _ in range(batches) for each in json_records(self._workload.batch(_TRICKLE_BATCH))
        ]
        trickle = SteadyFeeder(self._run.bootstrap, TOPIC).feed(records, rate)
        self._watch.wait_for(trickle.ends, _BATCH_TIMEOUT_S)
        waits_s = waits(trickle, self._watch.commits())
        return {
            "rate": rate,
            **percentiles(waits_s),
        }

    def _measure(self, tables: Any, timeout_s: float) -> tuple[float, list[SeenCommit]]:
        before = len(self._watch.commits())
        started_s, ends = self._batches.publish(tables)
        commit = self._watch.wait_for(ends, timeout_s)
        commits = self._watch.commits()[before:]
        return commit.seen_s - started_s, [each for each in commits if each.seen_s <= commit.seen_s]


def _count(commit: SeenCommit) -> int:
    return int(commit.records["input"])


def waits(trickle: Trickle, commits: Sequence[SeenCommit]) -> Any:
    """Seconds that each record waited for its commit; -> float64 array."""
    return timed_waits(trickle, commits)[1]


def timed_waits(trickle: Trickle, commits: Sequence[SeenCommit]) -> tuple[Any, Any]:
    """When each record was produced, by time.perf_counter, and how many seconds it waited for its commit;
    -> two float64 arrays.
    """
    produced, waits = [], []
    for partition in range(PARTITIONS):
        produced_s = np.asarray(trickle.produced_s.get(partition, []))
        first = trickle.first.get(partition, 0)
        nexts = np.asarray([commit.next.get(partition, 0) for commit in commits])
        # The first commit whose position lies behind the record.
        which = np.searchsorted(nexts, np.arange(first, first + produced_s.size), side="right")
        seen_s = np.asarray([commit.seen_s for commit in commits])
        produced.append(produced_s)
        waits.append(seen_s[which] - produced_s)
    return np.concatenate(produced), np.concatenate(waits)


def percentiles(waits_s: Any) -> dict[str, float]:
    """The figures of an array of seconds."""
    p50, p99 = np.percentile(waits_s, (50, 99))
    figures = {"p50_s": p50, "p99_s": p99, "max_s": waits_s.max()}
    return {"records": waits_s.size, **{name: round(float(figure), 3) for name, figure in figures.items()}}


def measure(options: Any, folder: Path, settings: dict[str, Any], say: Say) -> dict[str, Any]:
    """Everything on Tidemark's side that `options.parts` asks for; returns the report."""
    report: dict[str, Any] = {"settings": settings}
    workload = Workload(options.keys, seed=options.seed)
    with ExitStack() as stack:
        run = stack.enter_context(TidemarkRun(folder, settings))
        watch = stack.enter_context(CommitWatch(run.table, TOPIC))
        memory = stack.enter_context(MemorySampler(run.roles))
        try:
            side = TidemarkSide(run, watch, workload, options.interval_ms / 1000)
            say("loading")
            report["load"] = side.load()
            say(f"{options.keys} keys in {report['load']['seconds']} s")
            if "batches" in options.parts:
                cases = side.batches(options.batches, options.moves, options.repeat, say)
                report["cases"] = [case.summary() for case in cases]
            if "latency" in options.parts:
                report["latency"] = side.latency(options.rate, options.latency_s)
                say(f"latency at {options.rate}/s: {report['latency']}")
            if "sustained" in options.parts:
                report["sustained"] = side.sustained(options.backlog, options.sustained_s)
                say(f"sustained: {report['sustained']}")
            report["epochs"] = run.command("epoch", "list", "--limit", "1000")
            report["peak_mib"], report["cpu_s"] = memory.peaks_mib(), memory.cpu_seconds()
            report["anonymous_mib"] = memory.anonymous_mib()
        except Exception:
            say(run.last_log_lines())
            raise
        report["verified"] = run.command("verify")
    if "lookups" in options.parts:
        report["lookups"] = tidemark_lookups.measure(
            folder / "table", folder / "state", workload, options.lanes, options.lookups, say
        )
    report["checked"] = table_check.check(folder / "table", workload.expected())
    say(report["checked"])
    return report
