"""The trace of an epoch: three services that do not speak of it send spans that fit together."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.otlp_receiver import Received, receiving
from tests.unit.table_files import write_config
from tidemark.commit_coordinator.commit.step_times import StepTimes
from tidemark.commit_coordinator.status.epoch_traces import EpochTraces
from tidemark.config import load_config
from tidemark.epoch_protocol.entries import AttemptVoided, EpochCommitted, EpochPlanned, Rewound, Stage
from tidemark.epoch_protocol.fold import Verdict
from tidemark.index_assigner.assign_traces import AssignTraces
from tidemark.index_assigner.slots.observer import CountedTransaction
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.tracing import (
    NO_TRACES,
    AttemptKey,
    OtlpTraces,
    SpanFacts,
    open_traces,
    root_span_id,
    trace_id,
)
from tidemark.stream_writer.coordinator_client import PlannedEpoch
from tidemark.stream_writer.observer import WrittenEpoch
from tidemark.stream_writer.task_outcome import TaskFailed, TaskSucceeded
from tidemark.stream_writer.writer_traces import WriterTraces

START_MS = 1_700_000_000_000
INSTANT = "20231114221320000"
PLANNED = EpochPlanned(4, 7, 1, 0, 20, INSTANT, "0", "", START_MS + 1_000)
COMMITTED = EpochCommitted(4, 7, 1, INSTANT, "2", START_MS + 2_000)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def applied(entry: EpochPlanned | EpochCommitted | AttemptVoided | Rewound) -> Applied:
    return Applied(0, entry, Verdict.APPLIED)


def coordinate(traces: OtlpTraces) -> None:
    clock = ManualClock(START_MS + 1_000)
    watched, steps = EpochTraces("t", traces, clock), StepTimes(clock)
    steps.watch(watched.step)
    watched.observe(applied(PLANNED), 4)
    for name in ("plan_lock", "plan_append", "decide_append", "commit_metadata", "commit_data"):
        with steps.step(name):
            clock.advance(0.1)
    watched.observe(applied(COMMITTED), 4)


def write(traces: OtlpTraces) -> None:
    at = START_MS + 1_200
    outcomes = (TaskSucceeded(timings_ms={"task_read": 3.0}), TaskFailed("Torn", "it is torn", "", 0))
    times = (at, at + 20, at + 80, at + 90)
    WriterTraces("t", traces).ended(WrittenEpoch(PlannedEpoch(7, 1, INSTANT), *times, outcomes, False))


def assign(traces: OtlpTraces) -> None:
    watched = AssignTraces("t", traces)
    for stage, offset in ((Stage.ASSIGN, 12), (Stage.SHUFFLE, 13), (Stage.ASSIGN, 20), (Stage.ASSIGN, 21)):
        began = START_MS + offset
        watched.counted(CountedTransaction(stage, 0, offset, 100, began, began + 5))
    for stage in (Stage.SHUFFLE, Stage.ASSIGN):
        for entry in (PLANNED, COMMITTED):
            watched.applied(stage, applied(entry))


def test_spans_of_three_services_are_one_trace_in_the_right_order() -> None:
    with receiving() as receiver:
        for service, work in (("coordinator", coordinate), ("writer", write), ("assigner", assign)):
            sender = OtlpTraces(receiver.endpoint, service, "t")
            work(sender)
            sender.close()
        until(lambda: sum(map(len, receiver.traces().values())) >= 14)
        (spans,) = receiver.traces().values()
    by_name: dict[str, Received] = {span.name: span for span in spans}
    root = by_name["epoch"]
    assert root.parent == ""
    for name, service in (("assign", "assigner"), ("plan", "coordinator"), ("write", "writer")):
        assert (by_name[name].service, by_name[name].parent) == (f"tidemark-{service}", root.span)
    assert by_name["spark job"].parent == by_name["write"].span
    assert by_name["commit_data"].parent == by_name["commit"].span
    tops = [span.name for span in spans if span.parent == root.span]
    assert [name for name in tops if name != "decide"] == ["assign", "plan", "write", "commit"]
    assert by_name["commit"].ended_ns - by_name["commit"].began_ns == 200_000_000
    known = {"tidemark.table": "t", "tidemark.epoch": 7, "tidemark.attempt": 1, "tidemark.instant": INSTANT}
    for name in ("epoch", "assign", "write"):
        assert known.items() <= by_name[name].attributes.items()
    # The transaction behind the epoch's end, and the shuffle stage's, are not in it.
    assert by_name["assign"].attributes["tidemark.transactions"] == 2
    assert by_name["assign"].attributes["tidemark.records"] == 200
    assert [name for name, _ in by_name["spark job"].events] == ["task", "task failed"]
    assert by_name["write"].failed == "it is torn"


def test_an_attempt_that_was_given_up_is_a_trace_of_its_own_and_says_why() -> None:
    with receiving() as receiver:
        sender = OtlpTraces(receiver.endpoint, "coordinator", "t")
        watched = EpochTraces("t", sender, ManualClock(START_MS + 5_000))
        watched.observe(applied(PLANNED), 4)
        watched.observe(applied(AttemptVoided(4, 7, 1, "foreign commit")), 4)
        # Of another coordinator: not ours to tell.
        watched.observe(applied(PLANNED), 5)
        watched.observe(applied(COMMITTED), 5)
        sender.close()
        until(lambda: bool(receiver.traces()))
        (spans,) = receiver.traces().values()
    assert [(span.name, span.failed) for span in spans] == [("epoch", "foreign commit")]


def test_a_collector_that_is_not_there_holds_nothing_up() -> None:
    before = set(threading.enumerate())
    sender = OtlpTraces("http://127.0.0.1:1", "writer", "t")
    key = AttemptKey("t", 1, 1, None)
    for number in range(5_000):
        sender.part(key, SpanFacts("write", number, number + 1))
    began = time.monotonic()
    sender.close()
    assert time.monotonic() - began < 30
    # What waits still is not tried, batch by batch, behind our back.
    for thread in set(threading.enumerate()) - before:
        thread.join(60.0)
        assert not thread.is_alive()


def test_traces_that_cannot_be_made_end_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no such certificate")

    sender = OtlpTraces("https://127.0.0.1:1", "writer", "t")
    monkeypatch.setattr(sender, "_open", refuse)
    sender.part(AttemptKey("t", 1, 1, None), SpanFacts("write", 1, 2))
    assert not sender.enabled
    sender.root(AttemptKey("t", 1, 1, None), SpanFacts("epoch", 1, 2))
    sender.close()


def test_nothing_is_made_or_imported_without_an_endpoint(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path))
    assert open_traces(config, "writer", {}) is NO_TRACES
    disabled = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}
    assert open_traces(config, "writer", disabled) is NO_TRACES
    source = sys.modules["tidemark.stream_runtime.tracing"].__file__
    assert source is not None
    top = [line for line in Path(source).read_text().splitlines() if line.startswith(("import", "from"))]
    assert not [line for line in top if "opentelemetry" in line]


def test_the_endpoint_comes_from_the_configuration_or_opentelemetrys_variables(tmp_path: Path) -> None:
    file = write_config(tmp_path)
    with receiving() as receiver:
        from_environment = open_traces(
            load_config(file), "writer", {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        )
        assert from_environment.enabled
        from_environment.close()
        file.write_text(file.read_text() + f"telemetry: {{otlp_endpoint: '{receiver.endpoint}'}}\n")
        configured = open_traces(load_config(file), "writer", {})
        configured.part(AttemptKey("t", 1, 1, None), SpanFacts("write", 1, 2))
        configured.close()
        until(lambda: bool(receiver.traces()))


@pytest.mark.parametrize(
    "other", [("u", 7, 1, INSTANT), ("t", 8, 1, INSTANT), ("t", 7, 2, INSTANT), ("t", 7, 1, None)]
)
def test_each_attempt_has_ids_of_its_own(other: tuple[str, int, int, str | None]) -> None:
    one = AttemptKey("t", 7, 1, INSTANT)
    assert trace_id(one) == trace_id(AttemptKey(*one))
    assert trace_id(one) != trace_id(AttemptKey(*other))
    assert root_span_id(one) != root_span_id(AttemptKey(*other))
