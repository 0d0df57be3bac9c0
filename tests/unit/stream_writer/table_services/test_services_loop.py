"""The loop of table services against a coordinator and an engine that do what each test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import grpc
import pytest

from tidemark.errors import ErrorKind
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation, MergeOutcome
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer.errors import EngineFailedError
from tidemark.stream_writer.table_services import services_loop
from tidemark.stream_writer.table_services.bins import (
    BinReport,
    Blame,
    MergeBin,
    MergeFailed,
    decode_bin,
    encode_report,
)
from tidemark.stream_writer.table_services.services_loop import (
    BegunService,
    MergeSettings,
    PlannedService,
    ServicesLoop,
)

ACTION = PlannedService(3, "compact-data", "20260101000000000")
MIB = 1 << 20
FENCED = RpcError("BeginService", grpc.StatusCode.FAILED_PRECONDITION, "it is over")
GONE = RpcError("NextService", grpc.StatusCode.UNAVAILABLE, "no answer")
UNKNOWN_CALL = RpcError("NextService", grpc.StatusCode.UNIMPLEMENTED, "an older coordinator")
TOO_LARGE = RpcError(
    "ReportService", grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)"
)
REFUSED = RpcError("ReportService", grpc.StatusCode.INVALID_ARGUMENT, "the outcomes cannot be read")
DAMAGED = RpcError("ReportService", grpc.StatusCode.DATA_LOSS, "the outcomes are damaged")


def plan_of(*sizes: int) -> CompactionPlan:
    operations = [MergeOperation("p", f"g{n}", "1", None, (), size, 0) for n, size in enumerate(sizes)]
    return CompactionPlan("20260101000000000", False, "{}", tuple(operations))


class Coordinator:
    def __init__(self, plan: CompactionPlan) -> None:
        self.plan, self.is_behind = plan, False
        self.offered: list[PlannedService | RpcError | None] = [ACTION]
        self.begun, self.kept = 0, list[int]()
        self.reported: list[list[int]] = []
        self.failed: list[str] = []
        self.failures: list[list[MergeFailed]] = []
        self.done: list[int] = []
        self.given_back: list[int] = []
        self.keep: Callable[[], None] = lambda: None
        self.begins: RpcError | None = None
        self.reports: RpcError | None = None

    def next_service(self, wait_s: float) -> PlannedService | None:
        found = self.offered.pop(0) if self.offered else None
        if isinstance(found, RpcError):
            raise found
        return found

    def begin_service(self, number: int) -> BegunService:
        assert number == ACTION.number
        self.begun += 1
        if self.begins is not None:
            raise self.begins
        return BegunService(self.plan, "token", 0.5 if self.is_behind else 0.25, self.is_behind)

    def keep_service(self, number: int, done: int) -> None:
        self.kept.append(done)
        self.keep()

    def report_service(self, number: int, outcomes: Sequence[MergeOutcome]) -> None:
        if self.reports is not None:
            raise self.reports
        self.reported.append([each.ordinal for each in outcomes])

    def report_service_failed(
        self, number: int, reason: str, done: int, failures: Sequence[MergeFailed]
    ) -> None:
        self.failed.append(reason)
        self.failures.append(list(failures))
        self.done.append(done)

    def give_service_back(self, number: int) -> None:
        self.given_back.append(number)


def outcome(ordinal: int) -> MergeOutcome:
    return MergeOutcome(ordinal, "n", 1, 1, 0, 0, 0, 0, 1, 1)


class Engine:
    def __init__(self, slots: int = 8, run: Callable[[MergeBin], BinReport] | None = None) -> None:
        self.slots, self._run = slots, run or self.all_done
        self.merges_max = slots
        self.waves: list[list[MergeBin]] = []
        self.before: Callable[[], None] = lambda: None

    @staticmethod
    def all_done(work: MergeBin) -> BinReport:
        return BinReport(tuple(outcome(each.ordinal) for each in work.operations))

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        self.waves.append([decode_bin(data) for data in bins])
        self.before()
        return [encode_report(self._run(work)) for work in self.waves[-1]]


def loop(coordinator: Coordinator, engine: Engine, keep_s: float = 10.0) -> ServicesLoop:
    return ServicesLoop(coordinator, engine, MergeSettings("/table", 64 * MIB, "/tmp"), keep_s=keep_s)


def run_once(coordinator: Coordinator, engine: Engine) -> bool:
    return loop(coordinator, engine).run_once(0.0, threading.Event())


def test_waves_take_no_more_tasks_than_the_share_allows_and_all_is_reported() -> None:
    coordinator, engine = Coordinator(plan_of(*[200 * MIB] * 7)), Engine(slots=8)
    assert run_once(coordinator, engine)
    assert [len(wave) for wave in engine.waves] == [2, 2, 2]
    assert coordinator.reported == [list(range(7))]
    work = engine.waves[0][0]
    assert (work.base_uri, work.token, work.memory_bytes, work.scratch) == (
        "/table",
        "token",
        64 * MIB,
        "/tmp",
    )


@pytest.mark.parametrize(
    ("slots", "most", "waves"),
    [(8, 8, [2, 4, 2]), (2, 2, [1, 2, 2, 2, 1]), (2, 1, [1] * 8), (3, 2, [1, 2, 2, 2, 1]), (1, 1, [1] * 8)],
)
def test_what_is_behind_gets_more_tasks_from_the_next_wave_on_at_normal_priority(
    slots: int, most: int, waves: list[int]
) -> None:
    coordinator, engine = Coordinator(plan_of(*[300 * MIB] * 8)), Engine(slots=slots)
    engine.merges_max = most
    engine.before = lambda: setattr(coordinator, "is_behind", True)
    assert run_once(coordinator, engine)
    assert [len(wave) for wave in engine.waves] == waves
    assert [wave[0].is_nice for wave in engine.waves] == [True, *[False] * (len(waves) - 1)]


def test_one_slot_is_enough_and_an_action_without_operations_is_reported_at_once() -> None:
    coordinator, engine = Coordinator(plan_of(MIB, MIB)), Engine(slots=1)
    assert run_once(coordinator, engine)
    assert [len(wave) for wave in engine.waves] == [1]
    coordinator, engine = Coordinator(plan_of()), Engine()
    assert run_once(coordinator, engine)
    assert (engine.waves, coordinator.reported) == ([], [[]])


def test_a_failed_operation_fails_the_action_with_its_reason() -> None:
    def run(work: MergeBin) -> BinReport:
        return BinReport((outcome(0),), (MergeFailed(1, "OSError", "[Errno 28] No space left on device"),))

    coordinator, engine = Coordinator(plan_of(MIB, MIB, 600 * MIB)), Engine(slots=1, run=run)
    assert not run_once(coordinator, engine)
    assert len(engine.waves) == 1, "what is behind the failure waits for the next try"
    (reason,) = coordinator.failed
    assert "1 operations failed, first number 1, OSError: [Errno 28] No space left" in reason
    assert coordinator.done == [1]
    assert coordinator.reported == []


def test_what_file_groups_are_the_cause_of_keeps_no_other_group_from_being_merged() -> None:
    """So one try shows all of them, each with its own reason, and that the others can be merged."""

    def run(work: MergeBin) -> BinReport:
        (number,) = (each.ordinal for each in work.operations)
        if number in failures:
            return BinReport((), (failures[number],))
        return BinReport((outcome(number),))

    failures = {
        1: MergeFailed(1, "CorruptFileError", "a block is damaged", ErrorKind.CORRUPT, Blame.GROUP),
        3: MergeFailed(3, "OSError", "[Errno 5] Input/output error", None, Blame.PERHAPS),
    }
    coordinator, engine = Coordinator(plan_of(*[300 * MIB] * 5)), Engine(slots=1, run=run)
    assert not run_once(coordinator, engine)
    assert len(engine.waves) == 5
    assert coordinator.failures == [[failures[1], failures[3]]]
    assert coordinator.done == [3]
    assert coordinator.reported == []


def test_spark_that_gives_up_or_leaves_something_out_fails_the_action() -> None:
    def gives_up(work: MergeBin) -> BinReport:
        raise EngineFailedError("executor lost")

    coordinator = Coordinator(plan_of(MIB))
    assert not run_once(coordinator, Engine(run=gives_up))
    assert "executor lost" in coordinator.failed[0]
    coordinator = Coordinator(plan_of(MIB, MIB))
    assert not run_once(coordinator, Engine(run=lambda _: BinReport((outcome(0),))))
    assert "number 1, NotTried" in coordinator.failed[0]


@pytest.mark.parametrize("refusal", [TOO_LARGE, REFUSED, DAMAGED])
def test_a_report_that_can_never_be_taken_fails_the_action_with_its_reason(refusal: RpcError) -> None:
    """The coordinator would hand the action to this worker again, and get the same report, without an end."""
    coordinator = Coordinator(plan_of(MIB, MIB))
    coordinator.reports = refusal
    assert not run_once(coordinator, Engine())
    (reason,) = coordinator.failed
    assert "the report of 2 operations cannot be taken" in reason
    assert refusal.details in reason
    assert coordinator.done == [2]
    assert coordinator.failures == [[]], "no file group is the cause"


def test_a_report_without_an_answer_is_sent_again_and_fails_nothing() -> None:
    coordinator = Coordinator(plan_of(MIB))
    coordinator.reports = GONE
    with pytest.raises(RpcError):
        run_once(coordinator, Engine())
    coordinator.reports, coordinator.offered = FENCED, [ACTION]
    assert not run_once(coordinator, Engine())
    assert (coordinator.failed, coordinator.given_back) == ([], [])
    coordinator.reports, coordinator.offered = None, [ACTION]
    assert run_once(coordinator, Engine())
    assert coordinator.reported == [[0]]


def test_an_action_that_is_over_is_left_without_a_report() -> None:
    failed = MergeFailed(0, "FencedOutError", "gone", ErrorKind.FENCED)
    coordinator = Coordinator(plan_of(MIB))
    assert not run_once(coordinator, Engine(run=lambda _: BinReport((), (failed,))))
    coordinator.offered = [ACTION]
    coordinator.begins = FENCED
    assert not run_once(coordinator, Engine())
    assert (coordinator.reported, coordinator.failed) == ([], [])


def test_the_lease_is_kept_while_a_wave_runs_and_its_loss_ends_the_work() -> None:
    coordinator, engine = Coordinator(plan_of(300 * MIB, 300 * MIB)), Engine(slots=1)
    began = threading.Event()

    def lose() -> None:
        _wait(began)
        raise FENCED

    def until_it_is_lost() -> None:
        began.set()
        for thread in threading.enumerate():
            if thread.name == "service-lease":
                thread.join(60)
                assert not thread.is_alive()

    coordinator.keep, engine.before = lose, until_it_is_lost
    assert not loop(coordinator, engine, keep_s=0.001).run_once(0.0, threading.Event())
    assert coordinator.kept == [0]
    assert (len(engine.waves), coordinator.reported, coordinator.failed) == (1, [], [])


def test_a_worker_that_stops_gives_its_action_back_unless_it_has_reported_it() -> None:
    stop = threading.Event()

    def cancelled(work: MergeBin) -> BinReport:
        stop.set()
        raise EngineFailedError("cancelled")

    between_waves = Engine(slots=1)
    between_waves.before = stop.set
    for engine in (Engine(run=cancelled), between_waves):
        stop.clear()
        coordinator = Coordinator(plan_of(300 * MIB, 300 * MIB))
        assert not loop(coordinator, engine).run_once(0.0, stop)
        assert (coordinator.given_back, coordinator.failed, coordinator.reported) == ([3], [], [])
    stop.clear()
    coordinator = Coordinator(plan_of(MIB))
    assert loop(coordinator, between_waves).run_once(0.0, stop)
    assert coordinator.given_back == []


def test_the_loop_outlives_every_error_and_stops_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services_loop, "PAUSE_S", 0.0)
    coordinator, engine = Coordinator(plan_of(MIB)), Engine()
    coordinator.offered = [GONE, UNKNOWN_CALL, None, ACTION]
    stop = threading.Event()
    coordinator.report_service = lambda *_: stop.set()  # type: ignore[method-assign]
    loop(coordinator, engine).run(stop)
    assert stop.is_set()
    assert coordinator.offered == []


def _wait(event: threading.Event) -> None:
    assert event.wait(60)
