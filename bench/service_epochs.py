"""Epochs beside table services: how long a record waits for its commit with services and without, and how
many records a second are committed for minutes, against Hudi on Spark with inline services.

    python -m bench.service_epochs                               a small table, some minutes
    python -m bench.service_epochs --only latency --seconds 30
    python -m bench.service_epochs --keys 10000000 --seconds 300 --sustained-s 600 --backlog 40000000

Latency: windows without services (paused, with nothing open) and windows with them take turns on one table,
at one rate, with the same kills of the coordinator, the writer and an assigner in each. In a window with
services every kind is also asked for, so that short windows have some actions of each; what ended is counted.
Rate: a backlog appears at once, services are on with their defaults; Hudi takes batches back to back, and
compacts, cleans and archives inline at its own defaults.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

from bench import hudi_side
from bench.commit_watch import CommitWatch
from bench.conditions import conditions, load_average
from bench.feeder import SteadyFeeder, json_records
from bench.tidemark_process import TOPIC, TidemarkRun, configuration
from bench.tidemark_side import TidemarkSide, percentiles, waits
from bench.whole_run import command_line, report, say
from bench.workload import Workload
from tidemark.console.admin_client import connect
from tidemark.errors import TidemarkError

PARTS: Final = ("latency", "sustained", "hudi")
KINDS: Final = ("compact-index", "compact-data", "clean", "archive")
WANTED: Final = 3
"""Actions of each kind that a comparison should have in its windows."""
SHORT: Final = {
    "compact_index": {"log_files": 10, "min_interval": "2s"},
    "compact_data": {"log_files": 10, "min_interval": "2s"},
    "clean": {"retain": "10s", "interval": "5s"},
    "archive": {"min": 20, "max": 30, "batch": 5},
}
"""So that each kind acts within a minute; the defaults act within an hour."""
_KILLED: Final = ("coordinator", "writer", "assigner")
_BATCH: Final = 1_000
_TIMEOUT_S: Final = 300.0
_NO_ANSWER: Final = (TidemarkError, grpc.RpcError)
# An action takes longer than that: it is decided a second after its plan.
_LOOK_EVERY_S: Final = 1.0


@dataclass
class Actions:
    """The service actions that ended while it was entered: kind -> number -> bytes that it worked on."""

    run: TidemarkRun
    ended: dict[str, dict[int, int]] = field(default_factory=dict)
    orders: int = 0
    """How often every kind is asked for, evenly over `seconds`."""
    seconds: float = 0.0

    def counts(self) -> dict[str, int]:
        """Kind -> how many ended."""
        return {kind: len(of_kind) for kind, of_kind in sorted(self.ended.items())}

    def largest_mb(self, kind: str) -> float:
        """Megabytes of the kind's largest action."""
        return round(max(self.ended.get(kind, {}).values(), default=0) / 1e6, 1)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Looks and asks on a thread of its own."""
        stopped = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stopped,), name="service-actions", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _watch(self, stopped: threading.Event) -> None:
        before = _ended(self.run)
        began_s, ordered = time.perf_counter(), 0
        while not stopped.wait(_LOOK_EVERY_S):
            for (kind, number), size in _ended(self.run).items():
                if (kind, number) not in before:
                    self.ended.setdefault(kind, {})[number] = size
            passed = (time.perf_counter() - began_s) / max(self.seconds, 0.001)
            if ordered < self.orders and passed >= ordered / self.orders:
                ordered += 1
                self._order()

    def _order(self) -> None:
        # A coordinator that was killed answers later; what is open already is not asked for again.
        with contextlib.suppress(*_NO_ANSWER), connect(str(self.run.file)) as client:
            for kind in KINDS:
                client.run_service(kind)


def _ended(run: TidemarkRun) -> dict[tuple[str, int], int]:
    """(kind, number) -> bytes of what ended last, and was not voided; nothing while nobody answers."""
    with contextlib.suppress(*_NO_ANSWER), connect(str(run.file)) as client:
        lasts = ((state.kind, state.last) for state in client.services()[0].kinds)
        return {(kind, last.number): last.bytes for kind, last in lasts if last and last.outcome != "voided"}
    return {}


class Windows:
    """The windows of one table, one after the other."""

    def __init__(self, run: TidemarkRun, watch: CommitWatch, workload: Workload, options: Any) -> None:
        self._run, self._watch, self._workload, self._options = run, watch, workload, options
        self._feeder = SteadyFeeder(run.bootstrap, TOPIC)

    def without(self) -> Any:
        """Seconds that each record waited while no service ran; -> float64 array."""
        self._call(lambda client: client.pause_services("a window without services"))
        until_s = time.monotonic() + _TIMEOUT_S
        while self._is_open() and time.monotonic() < until_s:
            time.sleep(_LOOK_EVERY_S)
        return self._fed()

    def beside(self, actions: Actions) -> Any:
        """As `without`, with services on; ``actions`` gets what they did."""
        self._call(lambda client: client.resume_services())
        actions.orders, actions.seconds = WANTED, self._options.seconds
        with actions.watched():
            return self._fed()

    def _fed(self) -> Any:
        count = max(round(self._options.rate * self._options.seconds / _BATCH), 1)
        batches = (json_records(self._workload.batch(_BATCH)) for _ in range(count))
        records = [record for batch in batches for record in batch]
        stopped = threading.Event()
        killer = threading.Thread(target=self._kill, args=(stopped,), name="kills", daemon=True)
        killer.start()
        trickle = self._feeder.feed(records, self._options.rate)
        stopped.set()
        killer.join()
        self._watch.wait_for(trickle.ends, _TIMEOUT_S)
        return waits(trickle, self._watch.commits())

    def _kill(self, stopped: threading.Event) -> None:
        """Kills processes of the run in turn, evenly over the window."""
        for number in range(self._options.kills):
            if stopped.wait(self._options.seconds / (self._options.kills + 1)):
                return
            for pid in self._run.roles().get(_KILLED[number % len(_KILLED)], [])[:1]:
                os.kill(pid, signal.SIGKILL)

    def _is_open(self) -> bool:
        with contextlib.suppress(*_NO_ANSWER), connect(str(self._run.file)) as client:
            return any(state.open for state in client.services()[0].kinds)
        return True

    def _call(self, call: Any) -> None:
        """Calls the coordinator; one that was killed is waited for."""
        until_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                with connect(str(self._run.file)) as client:
                    call(client)
                return
            except _NO_ANSWER:
                if time.monotonic() > until_s:
                    raise
                time.sleep(_LOOK_EVERY_S)


def latency(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Windows without and with services in turn; returns the figures of both."""
    found: dict[str, list[Any]] = {"without": [], "beside": []}
    workload = Workload(options.keys, seed=options.seed)
    settings = {**configuration("1s", options.lanes), "table_services": SHORT}
    with TidemarkRun(folder, settings) as run, CommitWatch(run.table, TOPIC) as watch:
        actions = Actions(run)
        say(f"loading: {TidemarkSide(run, watch, workload, 1.0).load()}")
        windows = Windows(run, watch, workload, options)
        windows.without()  # warms up
        for _ in range(options.rounds):
            found["without"].append(windows.without())
            found["beside"].append(windows.beside(actions))
            say(f"one round is done; ended so far: {actions.counts()}")
        verified = run.command("verify")
    figures: dict[str, Any] = {name: percentiles(np.concatenate(some)) for name, some in found.items()}
    figures["actions"] = actions.counts()
    figures["too_few"] = [kind for kind in _counted() if figures["actions"].get(kind, 0) < WANTED]
    figures["largest_data_compaction_mb"] = actions.largest_mb("compact-data")
    return {**figures, "verified": verified}


def sustained(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Records a second of a backlog, with services on at their defaults."""
    workload = Workload(options.keys, seed=options.seed)
    with (
        TidemarkRun(folder, configuration("1s", options.lanes)) as run,
        CommitWatch(run.table, TOPIC) as watch,
    ):
        side, actions = TidemarkSide(run, watch, workload, 1.0), Actions(run)
        side.load()
        with actions.watched():
            figures = side.sustained(options.backlog, options.sustained_s)
    return {**figures, "actions": actions.counts()}


def _counted() -> list[str]:
    return ["compact-index", "compact-data", "clean-data", "clean-index", "archive"]


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report as text."""
    yield f"{found['conditions']}; load after it {found['load_after']}"
    yield f"{found['keys']} keys, 2 Spark slots; services of the latency windows: {json.dumps(SHORT)}"
    if "latency" in found:
        one = found["latency"]
        for name, what in (("without", "no service"), ("beside", "services")):
            each = one[name]
            yield (
                f"{what:10} p50 {each['p50_s']:.3f} s, p99 {each['p99_s']:.3f} s, "
                f"longest {each['max_s']:.3f} s ({each['records']} records)"
            )
        ratios = (one["beside"][key] / max(one["without"][key], 0.001) for key in ("p50_s", "p99_s"))
        yield "with services against without: p50 {:.2f} x, p99 {:.2f} x".format(*ratios)
        yield f"actions that ended: {one['actions']}"
        yield f"largest data compaction: {one['largest_data_compaction_mb']} MB"
        if one["too_few"]:
            yield f"fewer than {WANTED} of {', '.join(one['too_few'])}: the windows were too short to compare"
    if "sustained" in found:
        one = found["sustained"]
        yield f"Tidemark: {one['records_per_s']} records/s over {one['seconds']} s; {one['actions']}"
        if one["records"] >= one["backlog_records"]:
            yield "the backlog was too small: it was done before the time was over"
    if "hudi" in found:
        for case in found["hudi"]["cases"]:
            batches = len(case["seconds"])
            rate, rows = case["rows_per_s"], case["rows"]
            yield f"Hudi: {rate} records/s in {batches} batches of {rows}, services inline"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = command_line("service_epochs", __doc__)
    add = parser.add_argument
    add("--only", default=",".join(PARTS), help="parts, separated by commas: latency, sustained, hudi")
    add("--keys", type=int, default=200_000, help="rows of the table before the first window")
    add("--lanes", type=int, default=4, help="index.lanes of Tidemark")
    add("--rate", type=float, default=1_000.0, help="records a second in the windows")
    add("--seconds", type=float, default=40.0, help="length of a window")
    add("--rounds", type=int, default=2, help="windows of each kind")
    add("--kills", type=int, default=1, help="processes that are killed in each window")
    add("--sustained-s", type=float, default=60.0, help="how long the rate is measured")
    add("--backlog", type=int, default=5_000_000, help="records that wait when it is measured")
    add("--batch", type=int, default=10_000, help="rows of a batch of Hudi's")
    add("--seed", type=int, default=17452)
    return parser.parse_args(argv)


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All parts; returns the report."""
    found: dict[str, Any] = {"conditions": conditions(), "keys": options.keys}
    parts = options.only.split(",")
    if "latency" in parts:
        found["latency"] = latency(options, work / "latency")
    if "sustained" in parts:
        found["sustained"] = sustained(options, work / "sustained")
    if "hudi" in parts:
        arguments = ["--batches", str(options.batch), "--moves", "0", "--compaction", "on", "--lookups", "0"]
        arguments += ["--seconds", str(options.sustained_s)]
        found["hudi"] = hudi_side.run_baseline(options, work / "hudi", arguments, say)
    found["load_after"] = load_average()
    return found


def main() -> None:
    report("service-epochs", parse_arguments(), measure, lines)


if __name__ == "__main__":
    main()
