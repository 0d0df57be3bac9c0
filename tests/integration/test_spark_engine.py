"""The writer's engine on a real Spark: who retries what, what a job reports, what survives between epochs."""

from __future__ import annotations

import concurrent.futures
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine_bins import merge_bin, wait_for_file
from tests.interop.read_table import ReadTable
from tests.unit.index_rebuilds import held_term
from tests.unit.table_files import write_config
from tests.unit.table_verification.damage import changed_table
from tidemark.config import load_config
from tidemark.errors import ErrorKind
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.table_services.rebuilding.planning import plan_rebuild
from tidemark.hudi_format.table_services.rebuilding.switching import switch
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.avro_records import encode_commit_metadata
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import SPARK_KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_writer import offline, task_outcome
from tidemark.stream_writer.epoch_stream import EpochStream
from tidemark.stream_writer.errors import EngineFailedError
from tidemark.stream_writer.job import TASK_ATTEMPTS_MAX, SparkEngine, session_settings, start_engine
from tidemark.stream_writer.offline import IndexBuild, build_index
from tidemark.stream_writer.table_services.bins import (
    decode_report,
)
from tidemark.stream_writer.task_outcome import TaskFailed, TaskOutcome, TaskSucceeded

pytestmark = pytest.mark.spark

RUNNER = "tests.integration.engine_runners:run_task"
_RESULT_S = 300.0


@pytest.fixture(scope="module")
def engine(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    scratch = tmp_path_factory.mktemp("spark")
    jars = ensure_jars(SPARK_KAFKA.name, java)
    section = {"spark.master": "local[2]"}
    log = scratch / "spark.log"
    engine = start_engine(section, java, scratch, RUNNER, jars=jars, log=log, share=0.25)
    yield engine
    engine.stop()


def _run(engine: SparkEngine, *orders: dict[str, Any], **options: Any) -> list[TaskOutcome]:
    tasks = [json.dumps(order).encode() for order in orders]
    return [task_outcome.decode(data) for data in engine.run_epoch_job(tasks, len(tasks), **options)]


def _only(outcomes: list[TaskOutcome]) -> TaskSucceeded:
    [outcome] = outcomes
    assert isinstance(outcome, TaskSucceeded), outcome
    return outcome


def test_outcomes_come_in_the_order_of_the_tasks(engine: SparkEngine) -> None:
    orders = [{"do": "sleep", "seconds": 0.3}, *({"do": "echo", "n": n} for n in range(4))]
    outcomes = _run(engine, *orders)
    stats = [each.write_stats[0] for each in outcomes if isinstance(each, TaskSucceeded)]
    assert [json.loads(stat) for stat in stats] == orders


def test_two_tasks_run_at_once(engine: SparkEngine, tmp_path: Path) -> None:
    assert engine.slots == 2
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    met = _run(
        engine,
        {"do": "meet", "mine": here, "others": there},
        {"do": "meet", "mine": there, "others": here},
    )
    assert [_only([outcome]).write_stats for outcome in met] == [(b"met",), (b"met",)]


def test_what_one_worker_keeps_the_others_find(engine: SparkEngine, tmp_path: Path) -> None:
    """In a folder that Spark takes away."""
    _only(_run(engine, {"do": "keep", "name": "some", "number": 7}))
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    found = _run(
        engine,
        {"do": "kept", "name": "some", "mine": here, "others": there},
        {"do": "kept", "name": "some", "mine": there, "others": here},
    )
    assert [_only([outcome]).write_stats for outcome in found] == [(b'{"n": [7]}',)] * 2
    assert len({_only([outcome]).worker_pid for outcome in found}) == 2
    local = Path(engine.session.conf.get("spark.local.dir") or "")
    assert [path.parent.name.split("-")[0] for path in local.glob("*/tidemark-values")] == ["blockmgr"]


def test_sparks_page_says_what_a_job_is(engine: SparkEngine) -> None:
    text = "flights: epoch 12 attempt 1, 4000 rows in 2 tasks"
    engine.describe(text)
    _run(engine, {"do": "echo"}, {"do": "echo"})
    store = engine.session.sparkContext._jsc.sc().statusStore()
    end_s = time.monotonic() + _RESULT_S
    described: set[str] = set()
    # Spark's store learns of a job a moment after it has ended.
    while f"Some({text})" not in described:
        assert time.monotonic() < end_s, described
        time.sleep(0.1)
        jobs = store.jobsList(None)
        described = {jobs.apply(number).description().toString() for number in range(jobs.size())}


def test_no_tasks_need_no_job(engine: SparkEngine) -> None:
    assert engine.run_epoch_job([], 0) == []


def test_failed_task_is_run_again_in_another_worker(engine: SparkEngine, tmp_path: Path) -> None:
    log = tmp_path / "tries"
    _only(_run(engine, {"do": "fail", "failures": 2, "log": str(log)}))
    pids = log.read_text().split()
    assert (len(pids), len(set(pids))) == (3, 3)


def test_worker_that_dies_is_replaced(engine: SparkEngine, tmp_path: Path) -> None:
    log = tmp_path / "tries"
    _only(_run(engine, {"do": "die", "failures": 1, "log": str(log)}))
    assert len(log.read_text().split()) == 2


def test_task_that_never_succeeds_says_why_and_the_others_are_kept(
    engine: SparkEngine, tmp_path: Path
) -> None:
    order = {"do": "fail", "failures": 99, "log": str(tmp_path / "tries")}
    good, bad = _run(engine, {"do": "echo"}, order)
    assert isinstance(good, TaskSucceeded)
    assert isinstance(bad, TaskFailed)
    assert (bad.error, bad.message, bad.attempt) == ("OSError", "try 4 fails", TASK_ATTEMPTS_MAX - 1)
    assert "engine_runners.py" in bad.traceback


def test_void_attempt_is_not_tried_again(engine: SparkEngine, tmp_path: Path) -> None:
    log = tmp_path / "tries"
    [failed] = _run(engine, {"do": "void", "log": str(log)})
    assert isinstance(failed, TaskFailed)
    assert (failed.error, failed.kind) == ("FencedOutError", ErrorKind.FENCED)
    assert len(log.read_text().split()) == 1


def test_workers_that_always_die_fail_the_job_and_the_session_lives_on(
    engine: SparkEngine, tmp_path: Path
) -> None:
    with pytest.raises(EngineFailedError, match="Spark gave the job up"):
        _run(engine, {"do": "die", "failures": 99, "log": str(tmp_path / "tries")})
    _only(_run(engine, {"do": "echo"}))


def test_job_that_takes_too_long_is_cancelled_and_the_session_lives_on(engine: SparkEngine) -> None:
    started_s = time.monotonic()
    with pytest.raises(EngineFailedError, match="after 1 s"):
        _run(engine, {"do": "sleep", "seconds": 600}, timeout_s=1.0)
    assert time.monotonic() - started_s < 500
    _only(_run(engine, {"do": "echo"}))


def test_bins_of_table_services_run_beside_the_job_of_an_epoch(engine: SparkEngine, tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        release = tmp_path / "release"
        epoch = pool.submit(
            _run, engine, {"do": "meet", "mine": str(tmp_path / "mine"), "others": str(release)}
        )
        (data,) = pool.submit(engine.run_bins, [merge_bin(tmp_path)]).result(_RESULT_S)
        assert not epoch.done()
        release.touch()
        assert _only(epoch.result(_RESULT_S)).write_stats == (b"met",)
    (failed,) = decode_report(data).failures
    assert (failed.ordinal, failed.error) == (0, "FencedOutError"), failed


def test_an_epoch_finds_all_its_slots_beside_a_merge(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of `local[2]`: the merge has one more, which `share` gives the session."""
    runner = "tests.integration.engine_runners:run_until_released"
    monkeypatch.setattr("tidemark.stream_writer.job.BIN_RUNNER", runner)
    merges, here, there = (tmp_path / name for name in ("merges", "here", "there"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        bins = pool.submit(engine.run_bins, [merge_bin(tmp_path)])
        wait_for_file(merges, _RESULT_S)
        try:
            met = _run(
                engine,
                {"do": "meet", "mine": str(here), "others": str(there)},
                {"do": "meet", "mine": str(there), "others": str(here)},
            )
            assert not bins.done()
        finally:
            (tmp_path / "release").touch()
        assert decode_report(bins.result(_RESULT_S)[0]).failures == ()
    assert [_only([outcome]).write_stats for outcome in met] == [(b"met",), (b"met",)]


def test_a_cancelled_bin_fails_its_job_alone(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge waits to be released: it neither ends before it is cancelled, nor is cancelled unbegun."""
    runner = "tests.integration.engine_runners:run_until_released"
    monkeypatch.setattr("tidemark.stream_writer.job.BIN_RUNNER", runner)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        release = tmp_path / "release"
        epoch = pool.submit(
            _run, engine, {"do": "meet", "mine": str(tmp_path / "mine"), "others": str(release)}
        )
        bins = pool.submit(engine.run_bins, [merge_bin(tmp_path)])
        wait_for_file(tmp_path / "merges", _RESULT_S)
        while not bins.done():
            engine.cancel_bins()
            time.sleep(0.02)
        with pytest.raises(EngineFailedError, match="Spark gave the job up"):
            bins.result()
        release.touch()
        assert _only(epoch.result(_RESULT_S)).write_stats == (b"met",)


@pytest.mark.kafka
def test_workers_read_committed_ranges_and_keep_their_reader(
    engine: SparkEngine, kafka: EmbeddedKafka
) -> None:
    section = {"bootstrap.servers": kafka.bootstrap_servers}
    client = ConfluentKafkaClient(section)
    client.admin().create_topics([TopicSpec("spark-engine", 1)])
    place = TopicPartition("spark-engine", 0)
    producer = client.producer("spark-engine")
    producer.init()
    for value, end in ((b"aborted", producer.abort), (b"committed", producer.commit)):
        producer.begin()
        sent = [producer.produce(place, value + b"-%d" % number) for number in range(3)]
        producer.flush()
        end()
    producer.close()
    last = sent[-1].offset
    order = {"do": "read", "kafka": section, "topic": place.topic, "first": 0, "last": last}
    outcomes = [_only(_run(engine, order)) for _ in range(6)]
    assert {each.write_stats[:-1] for each in outcomes} == {(b"committed-0", b"committed-1", b"committed-2")}
    readers = {(each.worker_pid, each.write_stats[-1]) for each in outcomes}
    assert len(readers) == len({pid for pid, _ in readers}), "a worker made its reader anew"


class Decisions:
    """A decisions topic, and a writer of epochs that waits for `planned` as it would for the coordinator."""

    def __init__(self, engine: SparkEngine, kafka: EmbeddedKafka, topic: str, checkpoint: Path) -> None:
        section = {"bootstrap.servers": kafka.bootstrap_servers}
        client = ConfluentKafkaClient(section)
        client.admin().create_topics([TopicSpec(topic, 1)])
        self._producer = client.producer(topic)
        self._producer.init()
        self._place = TopicPartition(topic, 0)
        self._engine = engine
        self.planned: queue.Queue[int] = queue.Queue()
        self.written: queue.Queue[int] = queue.Queue()
        self.stop = threading.Event()
        self.stream = EpochStream(engine, section, topic, checkpoint, self._write_one)

    def append(self, entry: bytes) -> None:
        self._producer.begin()
        self._producer.produce(self._place, entry)
        self._producer.flush()
        self._producer.commit()

    def _write_one(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                epoch = self.planned.get(timeout=0.1)
            except queue.Empty:
                continue
            if epoch < 0:
                raise ValueError("no such epoch")
            _only(_run(self._engine, {"do": "echo", "epoch": epoch}))
            self.written.put(epoch)
            return

    def run_aside(self) -> concurrent.futures.Future[None]:
        pool = concurrent.futures.ThreadPoolExecutor(1)
        running = pool.submit(self.stream.run, self.stop)
        pool.shutdown(wait=False)
        return running


@pytest.mark.kafka
def test_stream_writes_each_epoch_once_and_starts_anew_with_what_is_planned(
    engine: SparkEngine, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    decisions = Decisions(engine, kafka, "stream-decisions", tmp_path / "checkpoint")
    decisions.append(b"claim")
    running = decisions.run_aside()
    for epoch in range(1, 6):
        decisions.planned.put(epoch)
        decisions.append(b"planned")
        assert decisions.written.get(timeout=300) == epoch
        decisions.append(b"committed")
    decisions.stop.set()
    running.result(timeout=300)
    # Planned while no writer ran; nothing is appended any more.
    decisions.planned.put(6)
    decisions.stop.clear()
    running = decisions.run_aside()
    assert decisions.written.get(timeout=300) == 6
    decisions.stop.set()
    running.result(timeout=300)
    assert decisions.written.empty()


@pytest.mark.kafka
def test_error_of_a_batch_ends_the_stream_as_it_is(
    engine: SparkEngine, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    decisions = Decisions(engine, kafka, "stream-fails", tmp_path / "checkpoint")
    decisions.append(b"claim")
    decisions.planned.put(-1)
    with pytest.raises(ValueError, match="no such epoch"):
        decisions.run_aside().result(timeout=300)


def test_session_whose_jvm_dies_is_reported_lost(tmp_path: Path) -> None:
    """In a process of its own: PySpark cannot start a second JVM in one that lost its first."""
    script = f"""
import contextlib, psutil, sys
from pathlib import Path
from tidemark.stream_runtime.platform.java import find_java
from tidemark.stream_writer.errors import EngineLostError
from tidemark.stream_writer.job import start_engine
folder = Path({str(tmp_path)!r})
engine = start_engine({{}}, find_java(), folder, {RUNNER!r}, log=folder / "log")
engine.run_epoch_job([b'{{"do": "echo"}}'], 1)
for process in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):  # a worker may end by itself
        process.kill() if "java" in process.name() else None
try:
    engine.run_epoch_job([b'{{"do": "echo"}}'], 1)
except EngineLostError:
    sys.exit(42)
"""
    finished = subprocess.run([sys.executable, "-c", script], timeout=300, capture_output=True, text=True)
    assert finished.returncode == 42, finished.stderr


def test_a_record_index_is_built_in_both_halves(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the function that `tidemark table rebuild-index` calls. It starts Spark and ends it: here it gets a
    session that is there, and stays.
    """
    path, shards = tmp_path / "table", 16
    changed_table(path, TableType.MERGE_ON_READ)
    config = load_config(write_config(tmp_path))
    before, said, stopped = ReadTable(path).record_index(), list[str](), list[Path]()

    def started(
        section: Mapping[str, str], java: JavaRuntime, scratch: Path, runner: str, *, log: Path
    ) -> SparkEngine:
        session_settings(section, (), scratch)
        assert java.home.is_dir()
        assert log.parent.is_dir()
        mine = SparkEngine(engine.session, runner)
        monkeypatch.setattr(mine, "stop", lambda: stopped.append(scratch))
        return mine

    monkeypatch.setattr(offline, "start_engine", started)
    with held_term(path, 1) as term:
        storage, times = term.storage, InstantGenerator(SystemClock())
        plan = plan_rebuild(storage, shards, times)
        schema = table_schema(storage, read_table_config(storage), load_timeline(storage))
        assert schema is not None
        paths = [plan.shard_path(shard) for shard in range(shards)]
        build = IndexBuild(schema.avro_json, plan.instant, paths, term.open_service(0), plan.slices)
        written = build_index(config, build, said.append)
        assert stopped == [config.state.path / "rebuild" / "spark"]
        assert sum(file.entries for file in written) == len(before)
        tickets = [file.ticket for file in written]
        commit = encode_commit_metadata(plan.commit(written, []))
        # `files` stays as it is: what of it was not compacted is no part of this test.
        switch(term, plan.rebuild(), tickets, times.next(), commit, lambda _: None)
    assert ReadTable(path).record_index() == before
