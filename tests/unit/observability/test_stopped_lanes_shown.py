"""What the coordinator says of lanes that stand still."""

from __future__ import annotations

from msgspec.structs import replace

from commit_coordinator.commit_service import stopped_lane
from commit_coordinator.stopped_lanes import StoppedLanes, stopped_documents, stopped_warnings
from epoch_protocol.entries import Stage
from epoch_protocol.stopped_lanes import StoppedLane, StopReason
from index_assigner.membership import _stopped_message
from stream_runtime.clock import ManualClock

BROKEN = StoppedLane(Stage.SHUFFLE, "in:1", "in", 1, 7, StopReason.UNREADABLE, "broken zstd", 1_000)
OTHER = StoppedLane(Stage.SHUFFLE, "in:0", "in", 0, 3, StopReason.DIED_TWICE, "killed", 2_000)


def test_what_owners_report_survives_the_wire() -> None:
    assert stopped_lane(Stage.SHUFFLE, _stopped_message(BROKEN)) == BROKEN


def test_a_reason_of_a_newer_version_is_no_error() -> None:
    message = _stopped_message(BROKEN)
    message.reason = "struck-by-lightning"
    assert stopped_lane(Stage.SHUFFLE, message).reason is StopReason.UNREADABLE


def test_a_lane_keeps_its_age_from_one_owner_to_the_next() -> None:
    clock = ManualClock()
    now_ms = clock.now_ms()
    first = replace(BROKEN, since_ms=now_ms)
    reported = [first]
    lanes = StoppedLanes(lambda: reported, clock)
    assert lanes.current() == [first]
    clock.advance(60.0)
    reported[:] = []
    assert lanes.current() == []
    reported[:] = [replace(BROKEN, since_ms=now_ms + 60_000)]
    assert lanes.current() == [first]
    reported[:] = [replace(BROKEN, offset=8, since_ms=now_ms + 60_000)]
    assert lanes.current() == reported
    clock.advance(3_600.0)
    reported[:] = [replace(BROKEN, since_ms=now_ms + 3_660_000)]
    lanes.current()
    assert lanes.current() == reported


def test_the_coordinators_own_reason_goes_first_until_it_is_released() -> None:
    lanes = StoppedLanes(lambda: [BROKEN, OTHER], ManualClock())
    recreated = replace(BROKEN, reason=StopReason.TOPIC_RECREATED, detail="another id", since_ms=5)
    lanes.stop(recreated)
    assert lanes.current() == [OTHER, recreated]
    lanes.release(Stage.SHUFFLE, "in:1")
    assert lanes.current() == [OTHER, BROKEN]
    assert stopped_documents([OTHER])[0]["offset"] == 3
    (warning,) = stopped_warnings([BROKEN])
    assert "in[1] is not read any further than offset 7 (unreadable): broken zstd" in warning
