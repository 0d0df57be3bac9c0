"""A log file is really damaged: from the worker's error to the plans without its group, and back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit_coordinator.calls.service_calls import ServiceCalls
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.domain.service_actions import (
    SeenServices,
    next_service,
    service_to_finish,
)
from tidemark.commit_coordinator.table_services.chosen_groups import FailedMerges
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.config.model import Address
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.publication.locate import service_files_of
from tidemark.hudi_format.table_services.operations import MergeOutcome
from tidemark.stream_writer.table_services.bins import (
    BinReport,
    MergeFailed,
    decode_bin,
    encode_report,
)
from tidemark.stream_writer.table_services.merges import merge_bin
from tidemark.stream_writer.table_services.services_client import GrpcServices, read_plan
from tidemark.stream_writer.table_services.services_loop import MergeSettings, ServicesLoop

KIND = ServiceKind.COMPACT_DATA
TEN_MINUTES_S = 600


class _Stub:
    """The calls of a worker, answered by the coordinator's code without a network."""

    def __init__(self, calls: ServiceCalls) -> None:
        self._calls = calls

    def NextService(self, request: Any, timeout: object) -> pb.NextServiceResponse:  # noqa: N802
        return self._calls.next_service(request.worker_id, 0.0)

    def BeginService(self, request: Any, timeout: object) -> pb.BeginServiceResponse:  # noqa: N802
        return self._calls.begin(request)

    def ReportService(self, request: Any, timeout: object) -> pb.ReportServiceResponse:  # noqa: N802
        self._calls.report(request)
        return pb.ReportServiceResponse()


class _Engine:
    """Merges bins in this process."""

    slots = merges_max = 4

    def __init__(self, story: Story) -> None:
        self._story = story

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        return [encode_report(self._run(data)) for data in bins]

    def _run(self, data: bytes) -> BinReport:
        work, said = decode_bin(data), list[MergeOutcome | MergeFailed]()
        merge_bin(work, self._story.storage, service_files_of(self._story.storage, work.token), said.append)
        return BinReport(
            tuple(each for each in said if isinstance(each, MergeOutcome)),
            tuple(each for each in said if isinstance(each, MergeFailed)),
        )


class Served:
    """A table's coordinator and a worker, on one thread."""

    def __init__(self, story: Story) -> None:
        self.story, served = story, story.served
        self.placement, self.state, self.seen = served.placement, served.state, SeenServices()
        handoff = ServiceHandoff(cast(Any, story.clock))
        rules = ServiceRules(enabled=True, clock_skew_ms=0)
        self.runner = ServiceRunner(served.context, [served.handlers[KIND]], handoff, rules)
        self.runner.note_failed = FailedMerges(self.placement, self.runner.plan_of).note
        client = GrpcServices(
            Address("127.0.0.1", 1),
            "t",
            "w",
            1 << 20,
            lambda begun: read_plan(story.storage, begun.plan_path, begun.plan_sha256),
        )
        client.close()
        cast(Any, client)._stub = _Stub(ServiceCalls(handoff, "ledger", 1 << 20))
        settings = MergeSettings(str(story.storage.base_uri), 64 << 20)
        self._loop = ServicesLoop(client, cast(Any, _Engine(story)), settings)

    def passes(self, seconds: int) -> None:
        """The loop of the coordinator, and the worker's, once a second."""
        observed: Any = SimpleNamespace(services=self.seen, halted=None)
        for _ in range(seconds):
            now_ms = self.story.clock.now_ms()
            self.runner.look(self.state, observed, now_ms)
            action = service_to_finish(self.state, self.seen, now_ms)
            action = action or next_service(self.state, self.seen, now_ms, 0)
            if action is not None:
                self.runner.carry_out(action, observed)
            self._loop.run_once(0.0, threading.Event())
            self.story.pass_by(1.0)

    def with_logs(self) -> set[tuple[str, str]]:
        return {stats.group for stats in self.placement.snapshot().data if stats.log_count}

    def failed(self) -> dict[tuple[str, str], tuple[int, str]]:
        items = self.placement.snapshot().failed.items()
        return {group: (merge.tries, merge.reason) for group, merge in items}

    def log_of(self, group: tuple[str, str]) -> Path:
        """The oldest log file of a group."""
        partition, file_id = group
        return min((self.story.path / partition).glob(f".{file_id}_*.log.*"))


# A merge that fails leaves Arrow's writer unfinished: its end finds the file closed. A worker's process ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_others_are_compacted_it_is_tried_again_alone_and_when_it_is_repaired_it_is_compacted(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    served = Served(story)
    groups = served.with_logs()
    bad = min(groups)
    assert len(groups) > 1
    log = served.log_of(bad)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2] + bytes(64) + whole[len(whole) // 2 + 64 :])

    served.passes(30)
    assert served.with_logs() == {bad}, "the others are compacted by the action after the one that was void"
    ((tries, reason),) = served.failed().values()
    assert tries == 1
    assert log.name in reason
    assert reason.startswith("CorruptFileError: ")
    assert served.seen.kind(KIND).failures == 0

    story.commit(range(3, 9))
    served.story.served.list_files()
    served.passes(60)
    assert served.with_logs() == {bad}, "the others go on at their pace"

    story.pass_by(TEN_MINUTES_S)
    served.passes(30)
    assert served.failed()[bad][0] == 2, "it was tried again"
    assert served.seen.kind(KIND).failures == 0

    log.write_bytes(whole)
    story.pass_by(2 * TEN_MINUTES_S)
    served.passes(30)
    assert served.failed() == {}
    assert served.with_logs() == set()
    story.check()
