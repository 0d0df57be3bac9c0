"""What becomes of an input topic's lanes when Kafka shows another topic than the one that was recorded."""

from __future__ import annotations

import msgspec
import pytest

from tidemark.epoch_protocol.input_topics import (
    InputTopic,
    InputTopics,
    SeenTopic,
    accepted,
    encode_input_topics,
    first_read,
    lanes_of,
    look,
    stale_logs,
)
from tidemark.epoch_protocol.lanes import parse_shuffle_lane, shuffle_lane, split_lane
from tidemark.epoch_protocol.stopped_lanes import StopReason

READ = InputTopic(partitions=2, partitions_before=2, id="a")


def test_a_first_look_takes_the_topic_as_it_is() -> None:
    assert first_read(SeenTopic(4, "a")) == InputTopic(4, 4, "a")


def test_growth_adds_lanes_and_is_remembered() -> None:
    grown, stopped = look(READ, SeenTopic(5, "a"))
    assert stopped is None
    assert grown.has_grown
    assert (grown.partitions, grown.partitions_before) == (5, 2)
    assert lanes_of("orders", grown)[2:] == ["orders:2", "orders:3", "orders:4"]
    assert accepted(grown, SeenTopic(5, "a"), keep_positions=False) == InputTopic(5, 5, "a")


def test_a_broker_that_lags_behind_takes_no_lane_away() -> None:
    assert look(READ, SeenTopic(1, "a")) == (READ, None)


@pytest.mark.parametrize("partitions", [1, 2, 9])
def test_another_id_stops_the_lanes_and_changes_nothing(partitions: int) -> None:
    assert look(READ, SeenTopic(partitions, "b")) == (READ, StopReason.TOPIC_RECREATED)


def test_a_topic_that_is_gone_stops_its_lanes() -> None:
    assert look(READ, None) == (READ, StopReason.TOPIC_MISSING)


def test_a_record_without_an_id_takes_the_first_that_it_sees() -> None:
    assert look(InputTopic(2, 2), SeenTopic(2, "a")) == (READ, None)


def test_without_ids_fewer_partitions_stand_for_another_topic() -> None:
    unknown = InputTopic(2, 2)
    assert look(unknown, SeenTopic(3, "")) == (InputTopic(3, 2), None)
    assert look(unknown, SeenTopic(1, "")) == (unknown, StopReason.TOPIC_RECREATED)


def test_an_accepted_log_has_lanes_of_its_own() -> None:
    taken = accepted(READ, SeenTopic(1, "b"), keep_positions=False)
    assert taken == InputTopic(1, 1, "b", incarnation=2)
    assert lanes_of("orders", taken) == ["orders@2:0"]
    again = accepted(taken, SeenTopic(2, "c"), keep_positions=False)
    assert lanes_of("orders", again) == ["orders@3:0", "orders@3:1"]


def test_a_restored_topic_keeps_its_lanes() -> None:
    assert accepted(READ, SeenTopic(2, "b"), keep_positions=True) == InputTopic(2, 2, "b")


def test_lane_names_say_topic_and_partition_of_every_incarnation() -> None:
    assert shuffle_lane("a.b", 3) == "a.b:3"
    for incarnation in (1, 2, 17):
        lane = shuffle_lane("a.b", 3, incarnation)
        assert parse_shuffle_lane(lane) == ("a.b", 3)
        assert split_lane(lane) == ("a.b" if incarnation == 1 else f"a.b@{incarnation}", "3")


def test_a_log_is_stale_when_its_id_or_its_incarnation_is_not_the_recorded_one() -> None:
    record = {"a": InputTopic(1, 1, "x"), "b": InputTopic(1, 1, "y", incarnation=2), "c": InputTopic(1, 1)}
    ids = {"a": "x", "b": "y", "c": "z"}
    assert stale_logs(record, ["a", "b@2", "c", "unrecorded"], ids) == frozenset()
    assert stale_logs(record, ["b"], ids) == {"b"}, "the former log's lanes read the new one no further"
    assert stale_logs(record, ["a", "c"], {"a": "other", "c": "z"}) == {"a"}
    assert stale_logs(record, ["a"], {}) == {"a"}
    assert stale_logs(record, ["a"], {"a": ""}) == frozenset()


def test_the_record_is_read_back_and_unknown_fields_are_passed_over() -> None:
    record = InputTopics({"a": InputTopic(3, 2, "x", 2, removed=True)})
    assert msgspec.json.decode(encode_input_topics(record), type=InputTopics) == record
    later = b'{"topics": {"a": {"partitions": 3, "partitions_before": 2, "later": 1}}, "version": 7}'
    assert msgspec.json.decode(later, type=InputTopics).topics["a"] == InputTopic(3, 2)
