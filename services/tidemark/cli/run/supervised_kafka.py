"""The embedded Kafka of `tidemark run`, which is started again when it dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemark.cli.run.supervised_process import Backoff
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.errors import BrokerFailedError
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import find_java

FOLDER = "kafka"


class SupervisedKafka:
    """Keeps Kafka's data, cluster id and ports below `state.path`, so that clients find it after a
    restart.
    """

    role = "kafka"

    def __init__(self, state: Path, clock: Clock, say: Callable[[str], None]) -> None:
        java = find_java()
        self._kafka = EmbeddedKafka(state / FOLDER, ensure_jars(KAFKA.name, java), java.home, clock=clock)
        self._clock = clock
        self._say = say
        self._backoff = Backoff()
        self._started_s = 0.0
        self._start_at_s = 0.0
        self._down = False

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's address. It changes only if another process took the ports while Kafka was down."""
        return self._kafka.bootstrap_servers

    @property
    def pids(self) -> list[int]:
        """The broker's process id; empty while it does not run."""
        return list(self._kafka.pids.values())

    def start(self) -> None:
        """Starts Kafka and returns when it answers. Raises BrokerFailedError."""
        self._kafka.start()
        self._started_s = self._clock.monotonic_s()

    def step(self) -> None:
        """Starts Kafka again if it died. That takes some seconds, and the call waits for it: the supervisor
        does not look at the services meanwhile.
        """
        if self._kafka.pids:
            return
        now_s = self._clock.monotonic_s()
        if not self._down:
            self._down = True
            self._start_at_s = now_s + self._backoff.wait_s(now_s - self._started_s)
            self._say(f"kafka ended; it starts again in {self._start_at_s - now_s:.1f} s")
        if now_s < self._start_at_s:
            return
        self._kafka.stop()
        try:
            self.start()
        except BrokerFailedError as error:
            self._start_at_s = self._clock.monotonic_s() + self._backoff.wait_s(0.0)
            self._say(str(error))
            return
        self._down = False
        self._say("kafka is back")

    def stop(self, grace_s: float) -> None:
        """Stops Kafka, by force after `grace_s`. Repeatable."""
        self._kafka.stop(grace_s)
