"""Runs `tidemark demo`. It ends every process that it started. Its steps:

1. makes the folder and starts the services (`tidemark run`)
2. sends the stream, and shows how it is committed
3. flushes, asks for what the report needs, has the table compacted, cleaned and archived, and stops the
   services
4. compares the table with the model, verifies it, and prints the report
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tidemark.config import TableConfigFile, load_config
from tidemark.config.run_file import read_run_file, resolve_addresses
from tidemark.console.admin_client import AdminClient
from tidemark.console.confirmation import confirm
from tidemark.console.errors import CliError
from tidemark.console.output import Output
from tidemark.demo import proofs
from tidemark.demo.comparison import TableDifference, compare_tables
from tidemark.demo.feeder import Feeder
from tidemark.demo.flights import EventStream
from tidemark.demo.folder import prepare_folder
from tidemark.demo.model import TableModel
from tidemark.demo.progress import Progress
from tidemark.demo.report import DemoReport, UpkeepAction, print_report, query_examples, table_checks
from tidemark.demo.terminal import DemoView, open_view
from tidemark.demo.upkeep import Upkeep, service_checks, settings_beside_defaults
from tidemark.errors import TidemarkError
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.ledger_client.dead_letters import read_dead_letters
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.platform import child
from tidemark.stream_runtime.platform.jars import KAFKA, SPARK_KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import find_java
from tidemark.stream_runtime.retry import Deadline
from tidemark.stream_runtime.rpc.health import is_serving
from tidemark.table_status.status import Status
from tidemark.table_verification.verify import Verification, verify_table

_TABLE: Final = "flights"
_START_S: Final = 180.0
_STREAM_S: Final = 3_600.0
_STALLED_S: Final = 120.0
_FLUSH_MS: Final = 180_000
_STOP_GRACE_S: Final = 75.0
_TICK_S: Final = 0.25
_EPOCHS_SHOWN: Final = 50


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command. `folder` is absolute. `yes`: delete a former demo in it without asking."""

    months: int
    table_type: str
    folder: Path
    as_json: bool
    yes: bool


@dataclass(frozen=True)
class _Streamed:
    """What the services answered before they were stopped."""

    seconds: float
    status: Status
    progress: Progress
    dead_letters: int
    found: list[dict[str, Any]]
    upkeep: tuple[UpkeepAction, ...]


def play(options: DemoOptions) -> int:
    """Runs the demo; returns the exit code. Raises CliError, PlatformError, StreamRuntimeError."""
    clock, ids = SystemClock(), SystemIds()
    file = prepare_folder(
        options.folder, options.table_type, ids.random(), lambda what: confirm(_TABLE, [what], options.yes)
    )
    java = find_java()
    for jars in (KAFKA, SPARK_KAFKA):
        ensure_jars(jars.name, java)
    config = load_config(file, env={})
    with open_view(sys.stderr, os.environ) as view:
        view.say(f"everything is below {options.folder}; services log to {config.state.path / 'logs'}")
        console = options.folder / "run.log"
        services = child.spawn([sys.executable, "-m", "tidemark.cli.entry", "run", "-c", str(file)], console)
        try:
            stream = EventStream(options.months)
            model = TableModel(stream.event_tables())
            streamed = _Session(config, clock, view, services, console).stream(stream, model)
        finally:
            child.end(services, clock, _STOP_GRACE_S)
        view.say("services are stopped; proving")
        difference = compare_tables(model.rows, proofs.read_with_hudi_rs(config.table.path))
        verified = verify_table(open_storage(config.table.path), lambda _: None)
    report = _report(options, config, stream, model, streamed, difference, verified)
    _tell(report, options, proofs.difference_lines(difference, verified))
    return 0 if report.proved else 1


class _Session:
    """The part of the demo while the services run. `services` is the process of `tidemark run`."""

    def __init__(
        self,
        config: TableConfigFile,
        clock: Clock,
        view: DemoView,
        services: subprocess.Popen[bytes],
        console: Path,
    ) -> None:
        self._config = config
        self._clock = clock
        self._view = view
        self._services = services
        self._console = console

    def stream(self, stream: EventStream, model: TableModel) -> _Streamed:
        """Sends the stream, flushes, and asks for what the report needs."""
        started_s = self._clock.monotonic_s()
        progress = Progress(len(stream), started_s)
        self._wait_for_services(progress)
        running = read_run_file(self._config.state.path)
        if running is not None and running.web:
            self._view.say(f"watch it in a browser: http://{running.web}")
        client = ConfluentKafkaClient.from_config(resolve_addresses(self._config), clock=self._clock)
        feeder = Feeder(stream, client, self._config.input.topics[0], self._clock)
        with AdminClient(self._config) as admin:
            self._wait_for_writer(admin, progress)
            first_s = self._clock.monotonic_s()
            feeder.start()
            try:
                self._follow(feeder, admin, progress)
            finally:
                feeder.stop()
            admin.flush(_FLUSH_MS)
            seconds = self._clock.monotonic_s() - first_s
            status, _ = admin.typed_status()
            epochs, _ = admin.typed_epochs(_EPOCHS_SHOWN)
            self._view.update(
                progress.stats("committed", self._clock.monotonic_s(), feeder.sent, status, epochs)
            )
            dead_letters = len(read_dead_letters(client, self._config.table.name, self._clock))
            keys = [key for key in (model.moved_key(), model.deleted_key()) if key is not None]
            locations = admin.lookup(keys)
            retain_ms = self._config.table_services.clean.retain_ms
            upkeep = Upkeep(admin, self._clock, self._view.say, retain_ms).finish()
        return _Streamed(seconds, status, progress, dead_letters, locations, upkeep)

    def _wait_for_services(self, progress: Progress) -> None:
        deadline = Deadline(self._clock, _START_S)
        while not (
            read_run_file(self._config.state.path) and is_serving(self._config.services.coordinator, 1.0)
        ):
            self._check_services()
            deadline.check("starting the services")
            self._view.update(progress.stats("starting", self._clock.monotonic_s(), 0, None))
            self._clock.sleep(_TICK_S)

    def _wait_for_writer(self, admin: AdminClient, progress: Progress) -> None:
        """Waits until the writer asks for work. Records that are sent before would wait for Spark's start,
        and the first latencies would be those of the start.
        """
        deadline = Deadline(self._clock, _START_S)
        while not admin.typed_status(5.0)[0].writer.asked:
            self._check_services()
            deadline.check("starting Spark")
            self._view.update(progress.stats("starting", self._clock.monotonic_s(), 0, None))
            self._clock.sleep(_TICK_S)

    def _follow(self, feeder: Feeder, admin: AdminClient, progress: Progress) -> None:
        """Shows the progress until everything that was sent is committed. Raises CliError when the services
        end, or commit nothing for `_STALLED_S` seconds.
        """
        deadline = Deadline(self._clock, _STREAM_S)
        moved_s, before = self._clock.monotonic_s(), -1
        while not (feeder.done and feeder.committed >= feeder.sent):
            self._check_services()
            if feeder.error is not None:
                raise CliError(f"sending the stream failed: {feeder.error}") from feeder.error
            deadline.check("the stream")
            now_s = self._clock.monotonic_s()
            status: Status | None
            try:
                status, _ = admin.typed_status(5.0)
            except TidemarkError:
                # A coordinator that is being restarted answers again soon; if not, the stall below ends the
                # demo.
                status = None
            if status is not None:
                phase = "streaming" if not feeder.done else "committing the rest"
                epochs, _ = admin.typed_epochs(_EPOCHS_SHOWN)
                stats = progress.stats(phase, now_s, feeder.sent, status, epochs)
                feeder.committed = stats.committed
                self._view.update(stats)
            if feeder.committed != before:
                moved_s, before = now_s, feeder.committed
            if now_s - moved_s > _STALLED_S:
                raise CliError(
                    f"nothing was committed for {_STALLED_S:.0f} s: see the logs in "
                    f"{self._config.state.path / 'logs'}"
                )
            self._clock.sleep(_TICK_S)

    def _check_services(self) -> None:
        if self._services.poll() is None:
            return
        tail = self._console.read_text(errors="replace").strip().splitlines()[-5:]
        raise CliError("the services ended: " + " | ".join(tail))


def _report(
    options: DemoOptions,
    config: TableConfigFile,
    stream: EventStream,
    model: TableModel,
    streamed: _Streamed,
    difference: TableDifference,
    verified: Verification,
) -> DemoReport:
    checks = table_checks(difference, model.counts.dead_letters, streamed.dead_letters)
    upkeep = service_checks(open_storage(config.table.path), config.table_services.archive.max)
    key = model.moved_key() or "flight_date:2013-01-01,carrier:UA,flight:1545,origin:EWR"
    return DemoReport(
        table_path=config.table.path,
        config_path=str(config.file),
        months=options.months,
        flights=stream.flights,
        stream=stream.counts,
        seconds=streamed.seconds,
        epochs=streamed.status.last_commit.epoch,
        commit_latency_ms_p50=streamed.progress.latency_ms(50),
        commit_latency_ms_p99=streamed.progress.latency_ms(99),
        checks=(*checks, *proofs.index_checks(verified), *upkeep),
        stories=proofs.stories(model, streamed.found),
        queries=query_examples(config.table.path, key),
        upkeep=streamed.upkeep,
        settings=settings_beside_defaults(config),
    )


def _tell(report: DemoReport, options: DemoOptions, differences: list[str]) -> None:
    output = Output(options.as_json)
    for line in differences:
        output.say(line)
    if options.as_json:
        output.answer(_document(report), [])
    else:
        print_report(Console(highlight=False), report)


def _document(report: DemoReport) -> dict[str, Any]:
    return {
        "proved": report.proved,
        "table": report.table_path,
        "config": report.config_path,
        "months": report.months,
        "flights": report.flights,
        "records": report.stream.records,
        "seconds": round(report.seconds, 3),
        "epochs": report.epochs,
        "commit_latency_ms": {"p50": report.commit_latency_ms_p50, "p99": report.commit_latency_ms_p99},
        "table_services": [
            {"kind": action.kind, "count": action.count, "seconds": round(action.seconds, 3)}
            for action in report.upkeep
        ],
        "table_service_settings": [
            {"key": setting.key, "here": setting.here, "default": setting.default}
            for setting in report.settings
        ],
        "checks": [
            {"name": check.name, "expected": check.expected, "found": check.found, "passed": check.passed}
            for check in report.checks
        ],
    }
