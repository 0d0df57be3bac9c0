"""The writer on a real standalone cluster of two hosts, whose Python knows nothing of Tidemark.

Both tests run the same table: the first with the executors' packages installed, first attempts failing and a
host lost; the second with everything shipped, and speculative copies that race what they copy.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.input_model import DELETE_FIELD, SCHEMA, Event, InputModel, RandomStream, Upsert, messages
from tests.integration.spark_cluster import SparkCluster, bare_python, events, wait_for
from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.pipeline import Pipeline
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.retry import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

FIRST, SECOND = "127.0.0.1", "127.0.0.2"
CLUSTER_SECRET: Final = "only-members-know-this"
KAFKA_PASSWORD: Final = "nobody-may-see-this"
FLUSH_MS: Final = 300_000
SITUATION_S: Final = 600.0
EPOCHS, SERVICES = "tidemark-epoch", "tidemark-services"
# No attempt is copied before it has run this long. A new executor's first task starts Python, which reads its
# packages from the archive; on a busy machine that took longer than the whole task on the other host, and so
# each attempt was copied before it had published.
COPY_NO_EARLIER: Final = "30s"
SPECULATION: Final = {
    "spark.speculation": True,
    "spark.speculation.minTaskRuntime": COPY_NO_EARLIER,
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": 0.5,
    "spark.speculation.multiplier": 1.1,
}


class ClusterTable:
    """A table whose writer is the driver of a cluster."""

    def __init__(self, folder: Path, kafka: str, cluster: SparkCluster) -> None:
        self.cluster = cluster
        self.events = folder / "events"
        self.events.mkdir()
        self.model = InputModel()
        self.stream = RandomStream(5, keys=150)
        self.pipeline = Pipeline(
            folder / "pipeline",
            kafka,
            {"name": "clustered", "record_key": ["id"], "partition": ["region"], "ordering": "ts"},
            SCHEMA,
            input={"delete_field": DELETE_FIELD},
        )

    def start_writer(self, python: Path, settings: dict[str, Any]) -> None:
        """With a password for Kafka that a plain connection does not use: the tasks have it all the same."""
        spark = {
            "spark.master": self.cluster.master,
            "spark.pyspark.python": str(python),
            "spark.authenticate": True,
            "spark.authenticate.secret": CLUSTER_SECRET,
            "spark.network.crypto.enabled": True,
            "spark.eventLog.enabled": True,
            "spark.eventLog.dir": self.events.as_uri(),
            **settings,
        }
        kafka = {"sasl.mechanism": "PLAIN", "sasl.username": "tidemark", "sasl.password": KAFKA_PASSWORD}
        file = self.pipeline.write_config("cluster.yaml", {"spark": spark, "kafka": kafka})
        self.pipeline.start_process("writer", file)

    def feed(self, given: list[Event]) -> None:
        self.model.apply(given)
        self.pipeline.feed_partitions(messages(given, 2))

    def feed_one(self, key: str) -> None:
        """One new row: an epoch of one data task and one index task, so that each host gets one of them."""
        row = {"id": key, "region": "eu", "ts": 1, "name": key, "amount": None}
        self.feed([Upsert(row)])

    def feed_some(self, count: int) -> None:
        self.feed(list(self.stream.events(count)))

    def flush(self) -> dict[str, Any]:
        try:
            return self.pipeline.flush(FLUSH_MS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.logs()}") from error

    def check(self) -> None:
        """All that was fed is committed, the table is the model, no orphan, index = rows."""
        self.flush()
        assert_same_rows(hudi_rs_snapshot(self.pipeline.table), self.model.live, "rows")
        verified = self.pipeline.command("verify", "--full", "--json")
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout)["rows"] == len(self.model.rows)

    def merge_index(self) -> None:
        """Compacts the record index now: a merge by the executors. Or one has just been done."""
        run = self.pipeline.command("services", "run", "compact-index", "--wait")
        assert run.returncode == 0, run.stdout + run.stderr

    def without_merges(self) -> None:
        """From now on only epochs have tasks and write files."""
        paused = self.pipeline.command("services", "pause", "--reason", "tasks of epochs are counted")
        assert paused.returncode == 0, paused.stdout + paused.stderr

        def none_open() -> bool:
            listed = json.loads(self.pipeline.command("services", "list", "--json").stdout)
            return not any(kind["open"] for kind in listed["kinds"])

        wait_for("the end of open service actions", none_open)

    def data_files(self) -> dict[str, float]:
        """name -> time of the last write, in ms since 1970, of everything that tasks publish."""
        roots = [*self.pipeline.table.glob("[!.]*"), self.pipeline.table / RECORD_INDEX_FOLDER]
        found = [
            file for root in roots for file in root.glob("*") if re.search(r"\.parquet$|\.log\.", file.name)
        ]
        return {str(file): file.stat().st_mtime_ns / 1e6 for file in found}


@pytest.fixture(scope="module")
def clustered(
    java: JavaRuntime, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterTable]:
    folder = tmp_path_factory.mktemp("cluster")
    with SparkCluster(folder / "spark", java, CLUSTER_SECRET) as cluster:
        made = ClusterTable(folder, kafka.bootstrap_servers, cluster)
        with made.pipeline:
            cluster.start_master()
            made.pipeline.start("coordinator", "assigner")
            yield made


@pytest.fixture
def table(clustered: ClusterTable) -> Iterator[ClusterTable]:
    """The test starts workers and a writer; whatever is left of them ends with it."""
    yield clustered
    with contextlib.suppress(KeyError):
        clustered.pipeline.kill("writer")
    for host in (FIRST, SECOND):
        clustered.cluster.kill_worker(host)


def test_executors_without_tidemark_write_though_first_attempts_fail_and_a_host_is_lost(
    table: ClusterTable, tmp_path: Path
) -> None:
    failing = {ENVIRONMENT_VARIABLE: "first_task_attempt:1:raise"}
    for host in (FIRST, SECOND):
        table.cluster.start_worker(host, failing)
    before = len(events(table.events))
    table.start_writer(bare_python(tmp_path / "python", with_packages=True), {})
    # Which host gets which task is Spark's dice: until each has failed one and written one, and three times.
    wanted = {(host, end) for host in (FIRST, SECOND) for end in ("Success", "ExceptionFailure")}
    deadline = Deadline(SystemClock(), SITUATION_S)
    rounds = 0
    while rounds < 3 or not outcomes(table, before) >= wanted:
        deadline.check(f"{wanted}, not {outcomes(table, before)}")
        table.feed_some(200)
        table.flush()
        rounds += 1
    _assert_no_secret_is_shown(table)
    table.merge_index()

    table.feed_some(300)
    table.cluster.kill_worker(SECOND)
    table.feed_some(300)
    table.check()
    table.pipeline.stop("writer")

    assert outcomes(table, before) >= wanted
    ended = ended_tasks(table, before, EPOCHS)
    assert not [each for each in ended if each["Task Info"]["Attempt"] == 0 and _succeeded(each)]
    assert any(_succeeded(each) for each in ended_tasks(table, before, SERVICES)), "nothing was merged there"


def outcomes(table: ClusterTable, before: int) -> set[tuple[str, str]]:
    """Where tasks of epochs ended, and how."""
    ended = ended_tasks(table, before, EPOCHS)
    return {(each["Task Info"]["Host"], each["Task End Reason"]["Reason"]) for each in ended}


def ended_tasks(table: ClusterTable, before: int, group: str) -> list[dict[str, Any]]:
    """The ends of tasks of a group of jobs. Merges of table services pass no failpoint of epochs' tasks."""
    seen = events(table.events)[before:]
    begun = [each for each in seen if each["Event"] == "SparkListenerJobStart"]
    jobs = [each for each in begun if each["Properties"]["spark.jobGroup.id"] == group]
    stages = {stage for job in jobs for stage in job["Stage IDs"]}
    ended = [each for each in seen if each["Event"] == "SparkListenerTaskEnd"]
    return [each for each in ended if each["Stage ID"] in stages]


def test_speculative_copies_and_what_they_copy_publish_each_file_once(
    table: ClusterTable, tmp_path: Path
) -> None:
    archive = tmp_path / "env.zip"
    packed = subprocess.run(
        [sys.executable, "-m", "tidemark.cli.entry", "archive", "--dependencies", "-o", str(archive)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert packed.returncode == 0, packed.stderr
    shipped = {"spark.archives": f"{archive}#env", "spark.executorEnv.PYTHONPATH": "env"}
    table.cluster.start_worker(FIRST)
    table.cluster.start_worker(SECOND, {ENVIRONMENT_VARIABLE: "first_task_published:1:stop"})
    before = len(events(table.events))
    python = bare_python(tmp_path / "python", with_packages=False)
    table.start_writer(python, {**SPECULATION, **shipped})
    gone = _wait_for_executors(table, before, set())
    table.without_merges()

    # The attempt freezes with its files published: its copy finds them, and takes them as they are. Where the
    # attempt needs longer than COPY_NO_EARLIER, either may be the one that writes: then again.
    deadline = Deadline(SystemClock(), SITUATION_S)
    made, copied_at_ms = _copied_epoch(table, "published-then-frozen")
    again = 0
    while max(made.values()) >= copied_at_ms:
        deadline.check("a copy that begins behind the files of what it copies, and does not write them again")
        table.cluster.kill_worker(SECOND)
        table.cluster.start_worker(SECOND, {ENVIRONMENT_VARIABLE: "first_task_published:1:stop"})
        gone = _wait_for_executors(table, before, gone)
        again += 1
        made, copied_at_ms = _copied_epoch(table, f"published-then-frozen-again-{again}")

    # The attempt freezes before it published: the copy does.
    table.cluster.kill_worker(SECOND)
    table.cluster.start_worker(SECOND, {ENVIRONMENT_VARIABLE: "first_task_attempt:1:stop"})
    _wait_for_executors(table, before, gone)
    made, copied_at_ms = _copied_epoch(table, "frozen-then-copied")
    assert max(made.values()) >= copied_at_ms, "nothing was left to publish for the copy"
    table.cluster.kill_worker(SECOND)
    table.check()
    table.pipeline.stop("writer")


def _copied_epoch(table: ClusterTable, key: str) -> tuple[dict[str, float], float]:
    """Files of the first epoch that begins with a task on the second host, each with the time of its last
    write, and when the copy of that task began; times in ms since 1970, all by this machine's clock.

    An executor that registered is offered tasks only when it has unpacked what was shipped, which no event
    tells: as long as the first host gets all tasks of an epoch, one more row makes one more.
    """
    deadline = Deadline(SystemClock(), SITUATION_S)
    number = 0
    while True:
        deadline.check(f"a task for {SECOND}")
        known, before = table.data_files(), len(events(table.events))
        table.feed_one(f"{key}-{number}")
        table.flush()
        seen = _events_of_ended_jobs(table, before)
        attempts = [each["Task Info"] for each in seen["SparkListenerTaskStart"]]
        if any(each["Host"] == SECOND and each["Attempt"] == 0 for each in attempts):
            break
        number += 1
    table.check()
    made = {name: at_ms for name, at_ms in table.data_files().items() if name not in known}
    assert len(made) == 2, "a data file and an index file"
    won = [
        each["Task Info"]
        for each in seen["SparkListenerTaskEnd"]
        if each["Task Info"]["Speculative"] and _succeeded(each)
    ]
    assert [each["Host"] for each in won] == [FIRST], seen["SparkListenerTaskEnd"]
    return made, float(won[0]["Launch Time"])


def _events_of_ended_jobs(table: ClusterTable, before: int) -> dict[str, list[dict[str, Any]]]:
    """By kind, once the log has the end of every job that began; Spark writes it a moment after the fact."""

    def complete() -> dict[str, list[dict[str, Any]]] | None:
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in events(table.events)[before:]:
            found[each["Event"]].append(each)
        begun = {each["Job ID"] for each in found["SparkListenerJobStart"]}
        ended = {each["Job ID"] for each in found["SparkListenerJobEnd"]}
        return found if begun and begun <= ended else None

    found: dict[str, list[dict[str, Any]]] = wait_for("the ends of jobs in Spark's events", complete)
    return found


def _succeeded(ended: dict[str, Any]) -> bool:
    return bool(ended["Task End Reason"]["Reason"] == "Success")


def _wait_for_executors(table: ClusterTable, before: int, gone: set[str]) -> set[str]:
    """Returns the ids of the executors once each host has one that lives, the second one none of ``gone``."""

    def alive() -> dict[str, str] | None:
        hosts: dict[str, str] = {}
        for each in events(table.events)[before:]:
            if each["Event"] == "SparkListenerExecutorAdded":
                hosts[each["Executor ID"]] = each["Executor Info"]["Host"]
            if each["Event"] == "SparkListenerExecutorRemoved":
                hosts.pop(each["Executor ID"], None)
        replaced = {number for number, host in hosts.items() if host == SECOND and number in gone}
        return hosts if set(hosts.values()) == {FIRST, SECOND} and not replaced else None

    return set(wait_for("an executor on each host", alive))


def _assert_no_secret_is_shown(table: ClusterTable) -> None:
    """Not in any process's arguments, nor in Spark's events (which its pages show), nor in any log."""
    arguments = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            arguments.append(" ".join(process.cmdline()))
    state = str(table.pipeline.config.state.path)
    assert [each for each in arguments if "pyspark-shell" in each and state in each], "no driver was seen"
    assert [each for each in arguments if "CoarseGrainedExecutorBackend" in each], "no executor was seen"
    logs = [*table.cluster.folder.glob("*.log"), *table.cluster.folder.glob("work-*/app-*/*/std*")]
    logs += [*table.pipeline.folder.glob("*.log"), *table.pipeline.folder.glob("state/writer/*.log")]
    shown = [*arguments, *(file.read_text(errors="replace") for file in (*table.events.iterdir(), *logs))]
    assert len(shown) > len(arguments) + 5
    for secret in (KAFKA_PASSWORD, CLUSTER_SECRET):
        assert not [text for text in shown if secret in text]
