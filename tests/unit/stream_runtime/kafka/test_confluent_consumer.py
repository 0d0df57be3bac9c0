"""How much one poll takes out of a client's queue."""

from __future__ import annotations

import pytest

from tidemark.stream_runtime.kafka.confluent.consumer import AssignedConsumer
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.ports import Isolation

MIB = 1 << 20


class Waiting:
    """A message that waits in the client; a megabyte is said, and not there."""

    def __init__(self, offset: int, size: int) -> None:
        self._offset, self._size = offset, size

    def __len__(self) -> int:
        return self._size

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    def headers(self) -> None:
        return None

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b""


class Client:
    """The confluent client's part, with a queue."""

    def __init__(self, sizes: list[int]) -> None:
        self.queue = [Waiting(offset, size) for offset, size in enumerate(sizes)]

    def poll(self, _: float) -> Waiting | None:
        return self.queue.pop(0) if self.queue else None

    def consume(self, count: int, _: float) -> list[Waiting]:
        taken, self.queue = self.queue[:count], self.queue[count:]
        return taken


def polled(sizes: list[int], messages_max: int, bytes_max: int) -> int:
    settings = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})
    consumer = AssignedConsumer(settings.partition_reader(Isolation.READ_COMMITTED, "g"), "x")
    consumer.close()
    consumer._consumer = Client(sizes)
    found = consumer.poll(messages_max, 0.0, bytes_max).messages
    assert [each.offset for each in found] == list(range(len(found)))
    return len(found)


@pytest.mark.parametrize("first", [100, MIB])
def test_large_records_end_a_poll_early(first: int) -> None:
    """Four batches that unpack to 48 records of a megabyte wait in the client once, and not here as well."""
    assert polled([first, *[MIB] * 200], 20_000, 4 * MIB) <= 17


def test_small_records_are_taken_to_the_end() -> None:
    assert polled([100] * 30_000, 20_000, 4 * MIB) == 20_000
    assert polled([100] * 500, 20_000, 4 * MIB) == 500
