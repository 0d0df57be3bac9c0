"""When a partition from which nothing comes counts as one that is not being read."""

from __future__ import annotations

from tidemark.stream_runtime.kafka.confluent.silence import APART_S, QUIET_S, Silence
from tidemark.stream_runtime.kafka.ports import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
POSITIONS = {A: 5, B: 5}


class Kafka:
    """Ends of partitions; counts how often they were asked for."""

    def __init__(self, **ends: int | None) -> None:
        self.ends = {A: ends.get("a"), B: ends.get("b")}
        self.asked: list[TopicPartition] = []

    def end(self, partition: TopicPartition) -> int | None:
        self.asked.append(partition)
        return self.ends[partition]


def stuck(silence: Silence, kafka: Kafka, now_s: float) -> TopicPartition | None:
    return silence.stuck(POSITIONS.__getitem__, kafka.end, now_s)


def watched(*partitions: TopicPartition) -> Silence:
    silence = Silence()
    silence.read(partitions, 0.0)
    return silence


def test_it_takes_two_looks_and_an_empty_poll_between_them() -> None:
    silence, kafka = watched(A), Kafka(a=9)
    assert stuck(silence, kafka, QUIET_S - 0.1) is None
    assert kafka.asked == []
    assert stuck(silence, kafka, QUIET_S) is None
    silence.nothing_came()
    assert stuck(silence, kafka, 2 * QUIET_S - 0.1) is None
    assert kafka.asked == [A]
    assert stuck(silence, kafka, 2 * QUIET_S) == A


def test_what_waits_to_be_taken_is_no_silence() -> None:
    """No poll was empty between the looks: its messages may lie behind those of others."""
    silence, kafka = watched(A), Kafka(a=9)
    stuck(silence, kafka, QUIET_S)
    assert stuck(silence, kafka, 2 * QUIET_S) is None
    silence.nothing_came()
    assert stuck(silence, kafka, 3 * QUIET_S) == A, "the second look was the first of another pair"


def test_a_partition_that_is_read_to_its_end_is_not_stuck() -> None:
    silence, kafka = watched(A), Kafka(a=5)
    for look in range(1, 6):
        silence.nothing_came()
        assert stuck(silence, kafka, look * QUIET_S) is None
    assert len(kafka.asked) == 5


def test_something_that_came_between_the_looks_ends_the_doubt() -> None:
    silence, kafka = watched(A), Kafka(a=9)
    stuck(silence, kafka, QUIET_S)
    silence.nothing_came()
    silence.read([A], QUIET_S + 1.0)
    assert stuck(silence, kafka, 2 * QUIET_S + 1.0) is None
    silence.nothing_came()
    assert stuck(silence, kafka, 3 * QUIET_S + 1.0) == A


def test_a_kafka_that_does_not_say_proves_nothing() -> None:
    silence, kafka = watched(A), Kafka(a=9)
    stuck(silence, kafka, QUIET_S)
    silence.nothing_came()
    kafka.ends[A] = None
    assert stuck(silence, kafka, 2 * QUIET_S) is None
    kafka.ends[A] = 9
    assert stuck(silence, kafka, 3 * QUIET_S) is None, "the doubt of before the outage is gone"


def test_while_kafka_does_not_say_it_is_asked_for_one_partition_in_ten_seconds() -> None:
    silence, kafka = watched(A, B), Kafka()
    for tenth in range(150):
        silence.nothing_came()
        stuck(silence, kafka, QUIET_S + tenth / 10)
    assert kafka.asked == [A, B]


def test_a_client_that_gives_no_answer_twice_is_not_reading() -> None:
    """It knows no broker any more, and is the one that is asked: it would be waited for without end."""
    silence, kafka = watched(A), Kafka()
    silence.nothing_came()
    assert stuck(silence, kafka, QUIET_S) is None
    silence.nothing_came()
    assert stuck(silence, kafka, 2 * QUIET_S) == A


def test_no_answer_about_one_partition_and_then_another_is_the_same_silence() -> None:
    silence, kafka = watched(A, B), Kafka()
    assert stuck(silence, kafka, QUIET_S) is None
    assert stuck(silence, kafka, 2 * QUIET_S) == B


def test_a_client_that_knows_the_leader_of_one_partition_alone_does_not_read_the_other() -> None:
    silence, kafka = watched(A, B), Kafka(b=5)
    found = []
    for second in range(1, 25):
        silence.read([B], float(second))
        found.append(stuck(silence, kafka, float(second)))
    assert [second for second, partition in enumerate(found, 1) if partition is not None] == [20]
    assert found[19] == A


class Reader:
    """Its client brings something of B each second and does not tell A's end. It changes it when told to."""

    def __init__(self) -> None:
        self.silence, self.kafka = watched(A, B), Kafka(b=5)
        self.changes: list[int] = []

    def read(self, seconds: range) -> None:
        for second in seconds:
            self.silence.read([B], float(second))
            if stuck(self.silence, self.kafka, float(second)) is not None:
                self.changes.append(second)
                self.silence.begin([A, B], float(second))


def test_a_client_that_reads_other_partitions_is_changed_less_and_less_often() -> None:
    """The leader of A may be away for an hour, and each change fetches anew what the client holds of B."""
    reader = Reader()
    reader.read(range(1, 500))
    assert reader.changes == [20, 60, 140, 300, 460]


def test_an_answer_about_the_partition_ends_the_patience() -> None:
    reader = Reader()
    reader.read(range(1, 66))
    reader.kafka.ends[A] = 5
    reader.read(range(66, 75))
    reader.kafka.ends[A] = None
    reader.read(range(75, 140))
    assert reader.changes == [20, 60, 90, 130]


def test_a_message_of_the_partition_ends_the_patience() -> None:
    reader = Reader()
    reader.read(range(1, 66))
    reader.silence.read([A], 66.0)
    reader.read(range(66, 130))
    assert reader.changes == [20, 60, 86, 126]


def test_a_client_from_which_nothing_at_all_comes_is_changed_without_patience() -> None:
    """Nothing is lost with it, and each new one may have lost its brokers, too."""
    silence, kafka = watched(A), Kafka()
    changes = []
    for second in range(1, 90):
        silence.nothing_came()
        if stuck(silence, kafka, float(second)) is not None:
            changes.append(second)
            silence.begin([A], float(second))
    assert changes == [20, 40, 60, 80]


def test_an_answer_or_a_message_between_ends_the_doubt_about_the_client() -> None:
    silence, kafka = watched(A), Kafka()
    stuck(silence, kafka, QUIET_S)
    kafka.ends[A] = 5
    assert stuck(silence, kafka, 2 * QUIET_S) is None
    kafka.ends[A] = None
    assert stuck(silence, kafka, 3 * QUIET_S) is None
    silence.read([A], 3 * QUIET_S + 1.0)
    assert stuck(silence, kafka, 4 * QUIET_S + 1.0) is None
    assert stuck(silence, kafka, 5 * QUIET_S + 1.0) == A


def test_partitions_are_looked_at_one_by_one_and_not_more_often_than_allowed() -> None:
    silence, kafka = watched(A, B), Kafka(a=5, b=5)
    stuck(silence, kafka, QUIET_S)
    stuck(silence, kafka, QUIET_S + APART_S / 2)
    assert kafka.asked == [A]
    stuck(silence, kafka, QUIET_S + APART_S)
    assert kafka.asked == [A, B]
    silence.forget([A])
    silence.nothing_came()
    stuck(silence, kafka, 3 * QUIET_S)
    stuck(silence, kafka, 4 * QUIET_S)
    assert kafka.asked == [A, B, B, B]
