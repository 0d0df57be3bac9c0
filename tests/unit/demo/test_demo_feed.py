"""The feeder of the compose set-up: sends all, at a pace, and goes on where it was killed."""

from dataclasses import dataclass
from typing import Any

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tidemark.demo import feed
from tidemark.demo.feed import FeedError, Position
from tidemark.stream_runtime.kafka.ports import TopicSpec

RECORDS = 1_750


@dataclass
class Batch:
    records: list[tuple[bytes, bytes]]


class Stream:
    """What `feed` uses of an EventStream; `dies_at`: the batch that is never handed out."""

    def __init__(self, dies_at=None):
        self.dies_at = dies_at

    def __len__(self):
        return RECORDS

    def batches(self, size):
        for number, start in enumerate(range(0, RECORDS, size)):
            if number == self.dies_at:
                raise KeyboardInterrupt
            yield Batch([(b"key", str(i).encode()) for i in range(start, min(start + size, RECORDS))])


def send(client, position, clock, stream: Any = None, rate=0):
    """Runs the feeder once; for the whole stream unless another is given."""
    whole: Any = Stream()
    return feed.feed(client, "flights", stream or whole, position, rate, clock)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def client(clock):
    client = MemoryKafkaClient(MemoryBroker(clock, SeededIds(1)))
    client.admin().create_topics([TopicSpec("flights", 4)])
    return client


@pytest.fixture
def position(tmp_path):
    return Position(tmp_path / "state" / "feed.json", "flights", 1)


def test_all_is_sent_once_and_a_second_run_sends_nothing(client, clock, position):
    assert send(client, position, clock) == RECORDS
    assert feed.records_in(client, "flights", clock) == RECORDS
    assert send(client, position, clock) == 0
    assert feed.records_in(client, "flights", clock) == RECORDS


def test_a_feeder_that_was_killed_goes_on_with_its_batch(client, clock, position):
    with pytest.raises(KeyboardInterrupt):
        send(client, position, clock, Stream(dies_at=2))
    assert send(client, position, clock) == RECORDS - 2 * feed.BATCH_RECORDS
    assert feed.records_in(client, "flights", clock) == RECORDS


def test_a_topic_that_was_emptied_is_fed_from_the_start(client, clock, position):
    send(client, position, clock)
    client.admin().delete_topics(["flights"])
    client.admin().create_topics([TopicSpec("flights", 4)])
    assert send(client, position, clock) == RECORDS


def test_another_stream_has_a_position_of_its_own(position, tmp_path):
    position.write(500)
    assert position.read(RECORDS) == 500
    assert Position(tmp_path / "state" / "feed.json", "flights", 2).read(RECORDS) == 0


def test_the_pace_is_kept(client, clock, position):
    send(client, position, clock, rate=100)
    assert clock.monotonic_s() == pytest.approx(RECORDS / 100)


def test_a_topic_that_nobody_creates_is_an_error_that_says_who_would(client, clock):
    with pytest.raises(FeedError, match="coordinator"):
        feed.records_in(client, "elsewhere", clock, timeout_s=5)
    assert clock.monotonic_s() >= 5


def test_no_month_sends_nothing_and_asks_nobody(tmp_path):
    assert feed.main(["-c", str(tmp_path / "no such file"), "--months", "0"]) == 0


def test_a_file_that_is_no_position_is_an_error_that_names_it(tmp_path):
    file = tmp_path / "feed.json"
    file.write_text("[]")
    with pytest.raises(FeedError, match=str(file)):
        Position(file, "flights", 1).read(10)
