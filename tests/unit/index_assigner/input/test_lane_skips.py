"""Looking for the end of a batch may take hours: nobody waits for that."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time

from testing.clock import ManualClock
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, StopReason
from tidemark.index_assigner.input.lane_skips import LaneSkips
from tidemark.index_assigner.input.lane_stops import LaneStops
from tidemark.stream_runtime.kafka.ports import TopicPartition


def stopped(*lanes: str) -> LaneStops:
    stops = LaneStops(Stage.SHUFFLE, ManualClock())
    for number, lane in enumerate(lanes):
        stops.stop(lane, TopicPartition("in", number), 7, StopReason.DEADLY, "why")
    return stops


def test_a_lane_whose_batch_has_no_end_in_sight_holds_up_no_other() -> None:
    ends = threading.Event()

    def last_of_batch(place: TopicPartition, offset: int) -> int:
        if place.partition == 0:
            ends.wait()
        return offset + 2

    skips = LaneSkips(stopped("in:0", "in:1"), last_of_batch, last_of_batch)
    orders = [SkipOrder("a", "in:0", 7), SkipOrder("b", "in:1", 7)]
    deadline = time.monotonic() + 60
    try:
        while skips.waiting() != ["in:1"]:
            assert time.monotonic() < deadline, "not within 60 s"
            skips.follow(orders)
            time.sleep(0.01)
        assert [(each.id, each.last) for each in skips.results()] == [("b", 9)]
    finally:
        ends.set()


def test_a_process_ends_while_a_batchs_end_is_looked_for() -> None:
    script = """
        import threading
        from tests.unit.index_assigner.input.test_lane_skips import LaneSkips, SkipOrder, stopped
        skips = LaneSkips(stopped("in:0"), *2 * [lambda *_: threading.Event().wait()])
        skips.follow([SkipOrder("a", "in:0", 7)])
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=300, check=False)
    assert done.returncode == 0
