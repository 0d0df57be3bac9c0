"""Sends the demo's stream to Kafka on a thread of its own, at most `ahead_max` records ahead of the
commits.
"""

from __future__ import annotations

import threading
from typing import Final

from tidemark.demo.flights import EventStream
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient

# Enough to keep the pipeline busy, and few enough for the view to show a stream instead of a backlog.
AHEAD_MAX: Final = 120_000
_WAIT_S: Final = 0.02


class Feeder:
    """Sends the stream. Call `start`, then read `sent` until `done`, and set `committed` to the number of
    records that are committed. `error` is set when sending failed.
    """

    def __init__(
        self, stream: EventStream, client: KafkaClient, topic: str, clock: Clock, ahead_max: int = AHEAD_MAX
    ) -> None:
        self._stream = stream
        self._client = client
        self._topic = topic
        self._clock = clock
        self._ahead_max = ahead_max
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self.sent = 0
        self.committed = 0
        self.error: Exception | None = None

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether every record was sent and acknowledged, or sending failed (`error`)."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stops sending before the end; returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            producer = self._client.plain_producer()
            try:
                for batch in self._stream.batches():
                    while self.sent - self.committed >= self._ahead_max and not self._stopped.is_set():
                        self._clock.sleep(_WAIT_S)
                    if self._stopped.is_set():
                        return
                    producer.produce_batch(self._topic, batch.records)
                    # Records count as sent when Kafka has acknowledged them.
                    producer.flush()
                    self.sent += len(batch.records)
            finally:
                producer.close()
        except Exception as error:
            self.error = error
