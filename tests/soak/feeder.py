"""Sends the soak's stream at a steady rate, and notes of a sample when it was sent and where it lies."""

from __future__ import annotations

import threading
import time
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from tests.soak.stream import SoakStream

_QUEUE_MAX: Final = 50_000
_BEHIND_MAX_S: Final = 1.0
_DELIVERY_TIMEOUT_MS: Final = 120_000


class Sent(NamedTuple):
    """One sampled record. `sent_s`: time.time when it was given to the producer."""

    partition: int
    offset: int
    sent_s: float


class Feeder:
    """A thread. After a standstill it does not make up for what it missed: the rate is never exceeded for
    long. What was reached, `sent` of the stream says; the soak compares it with the rate (`bounds.too_few`).
    `tick_s`: how often some are sent.
    """

    def __init__(self, bootstrap: str, topic: str, stream: SoakStream, rate: float, tick_s: float) -> None:
        self._topic, self._stream, self._rate, self._tick_s = topic, stream, rate, tick_s
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 10,
                "queue.buffering.max.messages": _QUEUE_MAX,
                "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "log_level": 2,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak feeder", daemon=True)
        self._lock = threading.Lock()
        self._samples: list[Sent] = []
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def samples(self) -> list[Sent]:
        """Those since the last call."""
        with self._lock:
            found, self._samples = self._samples, []
        return found

    def stop(self, timeout_s: float = 120.0) -> None:
        """Returns when all that was sent is acknowledged, or notes a failure."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if left := self._producer.flush(timeout_s):
            self.failures.append(f"{left} records were not acknowledged within {timeout_s:.0f} s")

    def _run(self) -> None:
        try:
            due, last_s = 0.0, time.monotonic()
            while not self._stop.wait(self._tick_s):
                now_s = time.monotonic()
                due, last_s = due + min(now_s - last_s, _BEHIND_MAX_S) * self._rate, now_s
                self._send(int(due))
                due -= int(due)
        except Exception as error:
            self.failures.append(f"the feeder ended: {type(error).__name__}: {error}")

    def _send(self, count: int) -> None:
        sampled: set[int] = set()
        for partition, (key, value) in self._stream.records(count):
            sent_s = time.time()
            # One of each partition and tick: all its records are sent in the same moment.
            wanted = partition not in sampled
            sampled.add(partition)
            self._produce(partition, key, value, sent_s if wanted else None)
        self._producer.poll(0)

    def _produce(self, partition: int, key: bytes | None, value: bytes | None, sent_s: float | None) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"a record was not taken: {error}")
            elif sent_s is not None:
                with self._lock:
                    self._samples.append(Sent(partition, int(message.offset()), sent_s))

        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)
