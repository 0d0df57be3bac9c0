"""A lane read in a process of its own, with a child that really dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.clock import ManualClock
from tests.unit.index_assigner.dying_child import END
from tidemark.index_assigner.input import careful_lanes
from tidemark.index_assigner.input.careful_frames import CarefulSettings, Setup
from tidemark.index_assigner.input.careful_lanes import ChildReader, Found
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition

PLACE, OTHER = TopicPartition("in", 3), TopicPartition("in", 4)
NOWHERE = str(END + 1_000)


def reader(config: str, clock: Clock | None = None) -> ChildReader:
    setup = Setup(CarefulSettings({}, {}), config, 4, 2, 0)
    return ChildReader(setup, 1 << 20, clock, "tests.unit.index_assigner.dying_child")


def read_all(
    lanes: ChildReader, each: Callable[[int], None] = lambda _: None, idle: Callable[[], None] = lambda: None
) -> tuple[list[Message], Found]:
    """Until the lane ends; ``each`` is called with the number of messages so far, ``idle`` when none came."""
    messages: list[Message] = []
    end = time.monotonic() + 300
    while time.monotonic() < end:
        found = lanes.found()
        if found is None:
            idle()
            time.sleep(0.01)
        elif found.messages:
            messages += found.messages
            each(len(messages))
        else:
            return messages, found
    raise AssertionError(f"no end within 300 s, {len(messages)} messages")


@pytest.mark.parametrize("deadly", [0, 5, 399])
def test_a_lane_ends_right_before_the_record_that_kills(deadly: int) -> None:
    lanes = reader(str(deadly))
    try:
        lanes.start(PLACE, 0)
        messages, last = read_all(lanes)
        assert [each.offset for each in messages] == list(range(deadly))
        assert (last.place, last.next, last.is_deadly) == (PLACE, deadly, True)
        assert all(each.headers == (("h", b"1"),) and each.value == b"v" for each in messages)
        # The lane behind it is read all the same, on and on.
        lanes.start(OTHER, deadly + 1)
        messages, last = read_all(lanes)
        assert [each.offset for each in messages][:3] == list(range(deadly + 1, deadly + 4))
        assert (last.place, last.is_over, last.is_deadly) == (OTHER, True, False)
        assert last.next >= END + 5
    finally:
        lanes.close()


def test_a_lane_ends_right_before_the_record_in_which_the_reader_hangs(tmp_path: Path) -> None:
    """Not while it reads ahead: there it may as well wait for a disk. Time passes while one hangs."""
    hanging, clock = tmp_path / "hanging", ManualClock()
    lanes = reader(f"hangs {hanging} 250", clock)

    def pass_time() -> None:
        child = lanes._child
        if child is not None and hanging.exists() and hanging.read_text() == str(child.pid):
            clock.advance(careful_lanes._SILENT_S + 1.0)

    try:
        lanes.start(PLACE, 0)
        messages, last = read_all(lanes, idle=pass_time)
        assert [each.offset for each in messages] == list(range(250))
        assert (last.next, last.is_deadly, last.hangs) == (250, True, True)
    finally:
        lanes.close()


def test_who_kills_the_reader_by_hand_stops_no_lane() -> None:
    lanes = reader(NOWHERE)
    killed: list[int] = []

    def kill(count: int) -> None:
        child = lanes._child
        if count // 100 > len(killed) and child is not None and child.pid not in killed:
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    try:
        lanes.start(PLACE, 0)
        messages, last = read_all(lanes, kill)
        assert [each.offset for each in messages] == list(range(END))
        assert last.is_over
        assert killed
    finally:
        lanes.close()


@pytest.mark.parametrize("how", ["exits", "killed", "silent", "babbles", "ended", "behind"])
def test_a_child_that_cannot_work_is_no_reason_to_stop(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a precaution: without it the lane is read like the others. Who has no memory for another process
    sees the kernel end it before it has fetched anything.
    """
    monkeypatch.setattr(careful_lanes, "_RETRY_S", 0.01)
    monkeypatch.setattr(careful_lanes, "_FAILURES_MAX", 3)
    monkeypatch.setattr(careful_lanes, "_SILENT_S", 1.0)
    monkeypatch.setattr(careful_lanes, "_END_S", 0.1)
    lanes = reader(how)
    try:
        lanes.start(PLACE, 7)
        messages, last = read_all(lanes)
        assert not messages
        assert (last.next, last.is_over, last.is_deadly) == (7, True, False)
    finally:
        lanes.close()


def test_nothing_of_a_lane_that_is_given_up_comes_any_more() -> None:
    lanes = reader(NOWHERE)
    try:
        lanes.start(PLACE, 0)
        lanes.start(OTHER, 600)
        lanes.forget(PLACE)
        messages, last = read_all(lanes)
        assert {each.partition for each in messages} == {OTHER.partition}
        assert last.place == OTHER
    finally:
        lanes.close()
