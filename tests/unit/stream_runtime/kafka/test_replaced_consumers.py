"""A consumer that knows no broker any more is replaced: it would stay silent for as long as it lives."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from testing.clock import ManualClock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.confluent import consumer, range_reader
from tidemark.stream_runtime.kafka.confluent.consumer import ConfluentPartitionReader, Events
from tidemark.stream_runtime.kafka.confluent.range_reader import ConfluentRangeReader
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.silence import QUIET_S
from tidemark.stream_runtime.kafka.errors import (
    KafkaConfigError,
    KafkaUnavailableError,
    LeaderChangingError,
)
from tidemark.stream_runtime.kafka.ports import Isolation, Message, OffsetRange, TopicPartition

PLACE = TopicPartition("t", 0)
SETTINGS = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})


def message(offset: int) -> Message:
    return Message(*PLACE, offset, None, b"", (), -1, False)


class Consumers:
    """Stands for `AssignedConsumer`. Those of `deaf`, by number, say nothing after what is in `first`."""

    def __init__(self, clock: ManualClock, deaf: int, first: Iterable[int] = ()) -> None:
        self._clock, self._deaf, self._first = clock, deaf, list(first)
        self.made: list[_Consumer] = []

    def __call__(self, settings: object, name: str) -> _Consumer:
        is_deaf = len(self.made) < self._deaf
        self.made.append(_Consumer(self._clock, is_deaf, self._first if is_deaf else range(100)))
        return self.made[-1]


class _Consumer:
    def __init__(self, clock: ManualClock, is_deaf: bool, offsets: Iterable[int]) -> None:
        self._clock, self.is_deaf, self._offsets = clock, is_deaf, list(offsets)
        self.positions: dict[TopicPartition, int] = {}
        self.is_closed = False

    def check_exists(self, places: object) -> None:
        if self.is_deaf and not self._offsets:
            raise KafkaUnavailableError("metadata of t: timed out")

    def resolve(self, place: TopicPartition, position: int) -> int:
        return position

    def end(self, place: TopicPartition) -> int | None:
        return None if self.is_deaf else 100

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        self.positions = dict(positions)

    add = assign

    def remove(self, places: object) -> None: ...

    def unassign(self) -> None:
        self.positions = {}

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = 0) -> Events:
        if self.positions and self._offsets:
            offset = self._offsets.pop(0)
            if offset >= self.positions[PLACE]:
                return Events([message(offset)], {}, None)
        self._clock.sleep(timeout_s)
        return Events([], {}, None)

    def close(self) -> None:
        self.is_closed = True


class SlowBroker:
    """Makes consumers of a broker that gives one message every `gap_s`, whichever of them asks."""

    def __init__(self, clock: ManualClock, gap_s: float) -> None:
        self.clock, self.gap_s, self.next_s = clock, gap_s, clock.monotonic_s()
        self.made = 0

    def __call__(self, settings: object, name: str) -> _SlowConsumer:
        self.made += 1
        return _SlowConsumer(self)


class _SlowConsumer(_Consumer):
    def __init__(self, broker: SlowBroker) -> None:
        super().__init__(broker.clock, False, ())
        self._broker = broker

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = 0) -> Events:
        now_s = self._clock.monotonic_s()
        if not self.positions or now_s < self._broker.next_s:
            self._clock.sleep(timeout_s)
            return Events([], {}, None)
        self._broker.next_s = now_s + self._broker.gap_s
        offset = self.positions[PLACE]
        self.positions[PLACE] += 1
        return Events([message(offset)], {}, None)


def leader_changes(places: object) -> None:
    raise LeaderChangingError("metadata of t: LEADER_NOT_AVAILABLE")


def partition_reader(
    clock: ManualClock, consumers: Consumers, patch: pytest.MonkeyPatch
) -> ConfluentPartitionReader:
    patch.setattr(consumer, "AssignedConsumer", consumers)
    return ConfluentPartitionReader(SETTINGS, Isolation.READ_COMMITTED, "g", clock)


def test_a_reader_goes_on_with_another_client_at_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=1, first=[0, 1, 2])
    reader = partition_reader(clock, consumers, monkeypatch)
    reader.assign({PLACE: 0})
    started_s = clock.monotonic_s()
    offsets: list[int] = []
    while len(offsets) < 5 and clock.monotonic_s() < started_s + 10 * QUIET_S:
        offsets += [each.offset for each in reader.poll(100, 0.1)]
    assert offsets == [0, 1, 2, 3, 4]
    assert clock.monotonic_s() <= started_s + 2 * QUIET_S + 1.0
    assert [each.is_closed for each in consumers.made] == [True, False]


def test_a_reader_whose_client_does_not_answer_asks_another_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=2)
    reader = partition_reader(clock, consumers, monkeypatch)
    with pytest.raises(KafkaUnavailableError):
        reader.assign({PLACE: 0})
    with pytest.raises(KafkaUnavailableError):
        reader.add({PLACE: 0})
    reader.add({PLACE: 7})
    assert [each.is_closed for each in consumers.made] == [True, True, False]
    assert consumers.made[-1].positions == {PLACE: 7}


class Refusing(_Consumer):
    """Tells once that its user may not read, as librdkafka does, and is silent from then on."""

    allowed = False
    made = 0

    def refuse(self, _places: object) -> None:
        raise KafkaConfigError("this user may not see the topic")

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, False, range(100))
        self._has_told = False
        Refusing.made += 1

    def poll(self, max_messages: int, timeout_s: float, max_bytes: int = 0) -> Events:
        if Refusing.allowed:
            return super().poll(max_messages, timeout_s, max_bytes)
        told, self._has_told = self._has_told, True
        return Events([], {}, None if told else KafkaConfigError("this user lacks an ACL"))


def test_a_reader_says_that_kafka_refuses_for_as_long_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(Refusing, "allowed", False)
    monkeypatch.setattr(Refusing, "made", 0)
    monkeypatch.setattr(consumer, "AssignedConsumer", lambda *_: Refusing(clock))
    reader = ConfluentPartitionReader(SETTINGS, Isolation.READ_COMMITTED, "g", clock)
    reader.assign({PLACE: 3})
    for _ in range(4):
        with pytest.raises(KafkaConfigError):
            reader.poll(100, 0.1)
    assert Refusing.made == 5
    with monkeypatch.context() as hidden:
        hidden.setattr(Refusing, "check_exists", Refusing.refuse)
        hidden.setattr(Refusing, "allowed", True)
        for _ in range(3):
            with pytest.raises(KafkaConfigError, match="may not see"):
                reader.poll(100, 0.1)
    monkeypatch.setattr(Refusing, "allowed", True)
    found = [each.offset for _ in range(6) for each in reader.poll(100, 0.1)]
    assert found == [3, 4, 5]


def test_a_reader_whose_new_client_does_not_answer_behind_a_refusal_asks_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker starts: for a moment it says that there is no such topic, then its controller leaves it out.
    The client that was made in between knows no broker for as long as it lives.
    """
    clock = ManualClock()
    made: list[_Consumer] = []

    def make(_settings: object, _name: str) -> _Consumer:
        made.append(
            Refusing(clock) if not made else _Consumer(clock, len(made) == 1, range(100 * (len(made) > 1)))
        )
        return made[-1]

    monkeypatch.setattr(consumer, "AssignedConsumer", make)
    reader = ConfluentPartitionReader(SETTINGS, Isolation.READ_COMMITTED, "g", clock)
    reader.assign({PLACE: 3})
    with pytest.raises(KafkaConfigError):
        reader.poll(100, 0.1)
    with pytest.raises(KafkaUnavailableError):
        reader.poll(100, 0.1)
    found = [message.offset for _ in range(6) for message in reader.poll(100, 0.1)]
    assert found == [3, 4, 5]
    assert [one.is_closed for one in made] == [True, True, False]


def test_a_reader_keeps_a_client_that_answers_that_a_leader_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new client would fetch anew what this one holds of the other partitions."""
    clock = ManualClock()
    consumers = Consumers(clock, deaf=0)
    reader = partition_reader(clock, consumers, monkeypatch)
    monkeypatch.setattr(consumers.made[0], "check_exists", leader_changes)
    with pytest.raises(LeaderChangingError):
        reader.assign({PLACE: 0})
    with pytest.raises(LeaderChangingError):
        reader.add({PLACE: 0})
    assert [each.is_closed for each in consumers.made] == [False]


def test_the_former_client_is_closed_also_when_the_new_one_takes_no_assignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=1)
    reader = partition_reader(clock, consumers, monkeypatch)

    def refuse(_self: object, _positions: object) -> None:
        raise RuntimeError("no assignment")

    monkeypatch.setattr(_Consumer, "assign", refuse)
    with pytest.raises(RuntimeError, match="no assignment"):
        reader.assign({PLACE: 0})
    assert [each.is_closed for each in consumers.made] == [True, False]


def range_reader_of(
    clock: ManualClock, consumers: Consumers | SlowBroker, patch: pytest.MonkeyPatch
) -> ConfluentRangeReader:
    patch.setattr(range_reader, "AssignedConsumer", consumers)
    return ConfluentRangeReader(SETTINGS, clock)


def test_a_range_is_read_with_another_client_and_each_message_comes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=1, first=[4, 5])
    found = range_reader_of(clock, consumers, monkeypatch).read(PLACE, 4, 9)
    assert [each.offset for each in found] == [4, 5, 6, 7, 8, 9]
    assert [each.is_closed for each in consumers.made] == [True, False]


def test_a_range_reader_whose_client_does_not_answer_asks_another_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=1)
    reader = range_reader_of(clock, consumers, monkeypatch)
    with pytest.raises(KafkaUnavailableError):
        reader.read(PLACE, 4, 9)
    assert [each.offset for each in reader.read(PLACE, 4, 9)] == [4, 5, 6, 7, 8, 9]


def test_a_range_reader_keeps_a_client_that_answers_that_a_leader_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=0)
    reader = range_reader_of(clock, consumers, monkeypatch)
    monkeypatch.setattr(consumers.made[0], "check_exists", leader_changes)
    with pytest.raises(LeaderChangingError):
        reader.read(PLACE, 4, 9)
    assert [each.is_closed for each in consumers.made] == [False]


def test_ranges_of_a_slow_broker_complete_although_the_client_is_changed_before_each_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new client goes on behind the last message that came: beginning anew, it would never get further."""
    clock = ManualClock()
    broker = SlowBroker(clock, gap_s=QUIET_S + 1.0)
    ranges = [OffsetRange(PLACE, 4, 6), OffsetRange(PLACE, 8, 9)]
    found = range_reader_of(clock, broker, monkeypatch).read_many(ranges, 100.0)
    assert [[each.offset for each in messages] for messages in found] == [[4, 5, 6], [8, 9]]
    assert broker.made == 5


def test_clients_that_all_say_nothing_end_a_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    consumers = Consumers(clock, deaf=100, first=[4])
    reader = range_reader_of(clock, consumers, monkeypatch)
    with pytest.raises(DeadlineExceededError):
        reader.read(PLACE, 4, 9, 30.0)
    assert len(consumers.made) <= 4
