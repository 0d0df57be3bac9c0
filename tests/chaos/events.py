"""What goes into the input topic, and what lies there: made by one, read back by the other.

The input is what the *topic* holds: a producer that loses its broker cannot know, a reader can. So nothing
that is checked rests on what the feeder believes that it sent.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.identities import identified, identity
from tests.input_model import DELETE_FIELD, Delete, Event, RandomStream, Upsert, messages

_BROKEN: Final = b"{ not json"
_BROKEN_SHARE: Final = 0.004
# Each handful makes transactions of both stages on every lane, and most of what a broker does is about those:
# twice a second are two or three in each epoch.
_TAKE: Final = 60
_FEED_TIMEOUT_MS: Final = 900_000
_POLL_S: Final = 0.2
# With a partitioned record index: a new partition after so many events.
_EVENTS_OF_A_DAY: Final = 1_000
_NEWEST: Final = 0.4
_NAMED: Final = 0.8


@dataclass(frozen=True)
class Arrived:
    """One record of the input topic. `event` is None for a record that nobody can decode."""

    partition: int
    offset: int
    event: Event | None


class Feeder:
    """Sends seeded events until it is told to stop, at about `rate` a second. One thread."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        seed: int,
        keys: int,
        rate: float,
        by_partition: bool = False,
    ) -> None:
        """`by_partition`: rows come into more and more partitions, and most deletes name one."""
        self._by_partition = by_partition
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._random = Random(seed)
        self._stream = RandomStream(seed, keys)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": _FEED_TIMEOUT_MS,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.failures: list[str] = []
        self.sent = 0
        self._events = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Returns when all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join(timeout_s)
        left = self._producer.flush(timeout_s)
        if left or self._thread.is_alive():
            self.failures.append(f"the feeder could not deliver {left} records within {timeout_s} s")

    def end(self) -> None:
        """Stops, whatever is delivered by then."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._producer.purge()

    def _run(self) -> None:
        while not self._stop.wait(_TAKE / self._rate):
            for event in self._stream.events(_TAKE):
                self._send(event)
            self._producer.poll(0)

    def _send(self, event: Event) -> None:
        self._events += 1
        for partition, records in messages([event], self._partitions).items():
            for key, made in records:
                value = self._in_a_partition(made) if self._by_partition and made is not None else made
                if self._random.random() < _BROKEN_SHARE:
                    self._produce(partition, key, _BROKEN)
                self._produce(partition, key, value)

    def _in_a_partition(self, value: bytes) -> bytes:
        """The record with a partition of this table."""
        document = json.loads(value)
        newest = self._events // _EVENTS_OF_A_DAY
        day = newest if self._random.random() < _NEWEST else self._random.randrange(newest + 3)
        if DELETE_FIELD not in document or self._random.random() < _NAMED:
            document["region"] = f"day-{day}"
        return json.dumps(document).encode()

    def _produce(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, partition, on_delivery=lambda error, _: self._delivered(error)
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self.sent += 1

    def _delivered(self, error: Any) -> None:
        if error is not None:
            self.failures.append(f"the feeder lost a record: {error}")


class InputReader:
    """Reads the input topic from its beginning, for one thread. Waits through outages."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, by_partition: bool = False) -> None:
        self._by_partition = by_partition
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), 0)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._lanes = [
            TopicPartition(self._topic, number, start or OFFSET_BEGINNING)
            for number, start in self._next.items()
        ]
        self._consumer = Consumer(self._settings)
        self._consumer.assign(self._lanes)

    def ends(self, timeout_s: float) -> dict[int, int]:
        """Where each partition ends now. Raises TimeoutError when no broker answers in time."""
        until = time.monotonic() + timeout_s
        while True:
            try:
                return {
                    lane.partition: self._consumer.get_watermark_offsets(lane, timeout=2.0)[1]
                    for lane in self._lanes
                }
            except KafkaException as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"the end of the input is not known: {error}") from error
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    # Seen: a client that lost the topic said so for minutes, beside a broker that was well.
                    self._consumer.close()
                    self._begin()
                # Asked without a pause, the client fails at once, and its memory grows by the gigabyte.
                time.sleep(_POLL_S)

    def read_to_end(self, timeout_s: float) -> list[Arrived]:
        """All records from where the last call ended to where the topic ends now."""
        ends = self.ends(timeout_s)
        until = time.monotonic() + timeout_s
        arrived: list[Arrived] = []
        while any(self._next[partition] < end for partition, end in ends.items()):
            if time.monotonic() > until:
                raise TimeoutError(f"read the input to {self._next}, it ends at {ends}")
            arrived += self._take(self._consumer.consume(1_000, _POLL_S))
        return arrived

    def close(self) -> None:
        """Repeatable."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def _take(self, found: Sequence[Any]) -> list[Arrived]:
        arrived = []
        for message in found:
            if message.error() is not None:
                continue
            self._next[message.partition()] = message.offset() + 1
            read = decode_in_partition if self._by_partition else decode
            event = read(message.key(), message.value())
            arrived.append(Arrived(message.partition(), message.offset(), event))
        return arrived


def decode(key: bytes | None, value: bytes | None) -> Event | None:
    """The event that a record is; None for one that is broken."""
    if value is None:
        return Delete((key or b"").decode())
    try:
        document = json.loads(value)
    except ValueError:
        return None
    if document.pop(DELETE_FIELD, False):
        return Delete(document["id"], document["ts"], typed=True)
    return Upsert(document, keyless=key is None)


def decode_in_partition(key: bytes | None, value: bytes | None) -> Event | None:
    """As `decode`, of a table with a partitioned record index: `identities`. A delete that names no partition
    is refused like one that is broken.
    """
    event = decode(key, value)
    if isinstance(event, Upsert):
        return Upsert(identified(event.row), event.keyless)
    region = json.loads(value).get("region") if event is not None and value is not None else None
    return None if event is None or region is None else Delete(identity(region, event.key), event.at, True)
