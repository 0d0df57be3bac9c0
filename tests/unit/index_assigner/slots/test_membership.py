"""The lease client over real gRPC: joins, renews, survives a coordinator that goes and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import Stage
from tidemark.errors import ErrorKind
from tidemark.index_assigner.assign_stage import RewindRequester
from tidemark.index_assigner.slots.lease import StageReport
from tidemark.index_assigner.slots.membership import Identity, JoinFacts, MembershipClient
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.rpc.channel import open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.server import RpcServer, start_server

LEASE_MS = 300


class FencedForTestError(StreamRuntimeError):
    kind = ErrorKind.FENCED


class RefusedForTestError(StreamRuntimeError):
    kind = ErrorKind.INVALID


class FakeCoordinator(rpc.CommitCoordinatorServicer):
    def __init__(self) -> None:
        self.known: set[str] = set()
        self.joins: list[pb.JoinRequest] = []
        self.renewals: list[pb.RenewRequest] = []
        self.left: list[pb.LeaveRequest] = []
        self.wishes: list[pb.WantRewindRequest] = []
        self.lanes = ["in:0", "in:1"]
        self.slot = 3
        self.shards = 8
        self.paused = False
        self.refuse = False

    def Join(self, request, _):  # noqa: N802
        if self.refuse:
            raise RefusedForTestError("wrong table")
        self.joins.append(request)
        self.known.add(request.process_id)
        slot = request.preferred_slot if request.HasField("preferred_slot") else self.slot
        return pb.JoinResponse(slot=slot, lease_ms=LEASE_MS, num_shards=self.shards, lanes=2, schema_id="id")

    def Renew(self, request, _):  # noqa: N802
        if request.process_id not in self.known:
            raise FencedForTestError("join again")
        self.renewals.append(request)
        return pb.RenewResponse(lanes=self.lanes, paused=self.paused, pause_reason="by hand")

    def _not_asked(self, request, _):
        raise AssertionError(f"unexpected call: {request}")

    LeaseFileGroups = NextEpoch = Begin = ReportWritten = ReportWrittenInParts = ReportFailed = _not_asked
    NextService = BeginService = ReportService = ReportServiceInParts = _not_asked

    def WantRewind(self, request, _):  # noqa: N802
        self.wishes.append(request)
        return pb.WantRewindResponse()

    def Leave(self, request, _):  # noqa: N802
        self.left.append(request)
        return pb.LeaveResponse()


def serve(fake: FakeCoordinator, port: int = 0) -> RpcServer:
    return start_server(
        Address("127.0.0.1", port),
        [
            (
                "tidemark.commit.v1.CommitCoordinator",
                lambda s: rpc.add_CommitCoordinatorServicer_to_server(fake, s),
            )
        ],
    )


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


class Rig:
    def __init__(self) -> None:
        self.fake = FakeCoordinator()
        self.server = serve(self.fake)
        self.channel = open_channel(self.server.address)
        identity = Identity("t", Stage.SHUFFLE, "p1", "127.0.0.1:9", "{}")
        self.client = MembershipClient(rpc.CommitCoordinatorStub(self.channel), identity, SystemClock())

    def close(self) -> None:
        self.client.stop()
        self.channel.close()
        self.server.stop(0.0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def test_joins_renews_reports_and_leaves(rig: Rig):
    rig.client.start()
    assert rig.client.facts(threading.Event()) == JoinFacts(8, 2, "id")
    wait_for(lambda: rig.client.lease() is not None)
    lease = rig.client.lease()
    assert lease is not None
    assert (lease.slot, lease.lanes, lease.current) == (3, frozenset({"in:0", "in:1"}), True)
    rig.client.report(StageReport(["in:1"], 5, {"lag": 7.0}))
    wait_for(lambda: list(rig.fake.renewals[-1].lanes_held) == ["in:1"])
    renewal = rig.fake.renewals[-1]
    assert (renewal.slot, renewal.uncommitted_entries, dict(renewal.figures)) == (3, 5, {"lag": 7.0})
    rig.client.stop("input was deleted")
    assert [(r.slot, r.failure) for r in rig.fake.left] == [(3, "input was deleted")]


def test_pause_and_lanes_are_heard_with_the_next_renewal(rig: Rig):
    rig.client.start()
    wait_for(lambda: rig.client.lease() is not None)
    rig.fake.paused, rig.fake.lanes = True, ["in:1"]
    lease = rig.client.renew_now()
    assert lease is not None
    assert (lease.paused, lease.pause_reason, lease.lanes) == (True, "by hand", frozenset({"in:1"}))


def test_a_restarted_coordinator_is_joined_again_in_the_same_slot(rig: Rig):
    rig.client.start()
    wait_for(lambda: rig.client.lease() is not None)
    port = rig.server.address.port
    rig.server.stop(0.0)
    wait_for(lambda: rig.client.lease().current is False)
    assert rig.client.lease().lanes == frozenset({"in:0", "in:1"})
    assert rig.client.renew_now() is None
    rig.fake = FakeCoordinator()
    rig.fake.slot = 9
    rig.server = serve(rig.fake, port)
    wait_for(lambda: rig.client.lease().current)
    assert rig.client.lease().slot == 3
    assert [j.preferred_slot for j in rig.fake.joins] == [3]


def test_a_coordinator_that_does_not_answer_is_asked_again_after_a_third_of_a_second(rig: Rig):
    """However long the lease is that it gave: everybody waits for it."""
    rig.client.start()
    wait_for(lambda: rig.client.lease() is not None)
    rig.client._lease_ms = 600_000
    port = rig.server.address.port
    rig.server.stop(0.0)
    wait_for(lambda: rig.client.renew_now() is None)
    rig.server = serve(rig.fake, port)
    before = len(rig.fake.renewals)
    wait_for(lambda: len(rig.fake.renewals) > before)


def test_an_ended_lease_is_joined_again_at_once_and_never_shows_no_lanes(rig: Rig):
    rig.client.start()
    wait_for(lambda: rig.client.lease() is not None)
    rig.fake.known.clear()
    seen = set()

    def joined_again() -> bool:
        seen.add(rig.client.lease().lanes)
        return len(rig.fake.joins) == 2 and len(rig.fake.known) == 1

    waits: list[float] = []
    wait = rig.client._stopped.wait

    def noted(timeout_s: float | None = None) -> bool:
        if len(rig.fake.known) == 0:
            waits.append(timeout_s or 0.0)
        return wait(timeout_s)

    rig.client._stopped.wait = noted  # type: ignore[method-assign, assignment]
    wait_for(joined_again)
    assert seen == {frozenset({"in:0", "in:1"})}
    # Before the renewal that is refused, and before the question that joins.
    assert waits[-1] == 0.0
    assert waits[:-1] in ([], [LEASE_MS / 3_000])


def test_a_refusal_for_good_is_raised_where_the_lease_is_asked_for(rig: Rig):
    rig.fake.refuse = True
    rig.client.start()
    with pytest.raises(RpcError, match="wrong table"):
        rig.client.facts(threading.Event())
    with pytest.raises(RpcError, match="wrong table"):
        rig.client.lease()


def test_another_table_under_the_same_name_stops_the_process(rig: Rig):
    rig.client.start()
    wait_for(lambda: rig.client.lease() is not None)
    rig.fake.shards = 16
    rig.fake.known.clear()

    def refused() -> bool:
        try:
            rig.client.lease()
        except SetupError as error:
            return "16" in str(error)
        return False

    wait_for(refused)


def test_without_a_coordinator_it_waits_until_told_to_stop(rig: Rig):
    rig.server.stop(0.0)
    rig.client.start()
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert rig.client.facts(stop) is None
    assert rig.client.lease() is None


def test_a_wish_for_a_rewind_reaches_the_coordinator_and_survives_its_absence():
    fake = FakeCoordinator()
    server = serve(fake)
    channel = open_channel(server.address)
    wish = RewindRequester(rpc.CommitCoordinatorStub(channel), "orders", "p1")
    wish("torn", 4, 7)
    [asked] = fake.wishes
    assert (asked.table, asked.process_id, asked.generation, asked.reason) == ("orders", "p1", 4, "torn")
    assert asked.epoch == 7
    server.stop()
    wish("torn", 4, 7)
    assert len(fake.wishes) == 1
    channel.close()
