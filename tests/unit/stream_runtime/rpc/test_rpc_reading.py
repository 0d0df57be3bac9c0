"""Who waits for a message, and who is cut off: decided by numbers and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from testing.clock import ManualClock
from tidemark.stream_runtime.rpc.reading import SlowCallers


class Call:
    """What is used of a gRPC context."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self.cut_off = False

    def peer(self) -> str:
        return self._connection

    def cancel(self) -> None:
        self.cut_off = True


class Rig:
    def __init__(self) -> None:
        self.told = 0
        self.ends = ExitStack()
        self.slow = SlowCallers(ManualClock(), self.late, {"leases": 3, "looks": 1})
        self.ends.callback(self.slow.close)

    def late(self) -> None:
        self.told += 1

    def wait(self, service: str, connection: str) -> Call:
        call = Call(connection)
        self.ends.enter_context(self.slow.awaited(call, service, 60.0))
        return call


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    with made.ends:
        yield made


def test_the_longest_wait_makes_room_for_one_more(rig: Rig):
    calls = [rig.wait("leases", connection) for connection in "abcde"]
    assert [each.cut_off for each in calls] == [True, True, False, False, False]
    assert rig.told == 2


def test_the_connection_with_the_most_waits_makes_room(rig: Rig):
    calls = [rig.wait("leases", connection) for connection in "abbcb"]
    assert [each.cut_off for each in calls] == [False, True, True, False, False]


def test_each_service_has_its_own_room(rig: Rig):
    leases = [rig.wait("leases", "a") for _ in range(3)]
    looks = [rig.wait("looks", "a") for _ in range(3)]
    assert not any(each.cut_off for each in leases)
    assert [each.cut_off for each in looks] == [True, True, False]


def test_who_has_its_message_makes_room_by_that(rig: Rig):
    patient = rig.wait("looks", "a")
    ended = Call("b")
    with rig.slow.awaited(ended, "leases", 60.0):
        pass
    calls = [rig.wait("leases", "b") for _ in range(3)]
    assert not any(each.cut_off for each in (patient, ended, *calls))
