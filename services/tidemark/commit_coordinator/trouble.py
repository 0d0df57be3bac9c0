"""What the table's storage or Kafka refuses, while the coordinator tries it again by itself.

A refusal is shown until a step is carried out, and one of Kafka for `SHOWN_S` at least. Example: the right
to read the ledger is taken away. A client tells that with some of its answers only, so steps between them
succeed; `status` must not say at every other moment that all is well.
"""

from __future__ import annotations

import logging
from typing import Final

from tidemark.commit_coordinator.domain.next_action import Observed
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.errors import REFUSED

SHOWN_S: Final = 5.0
_log = logging.getLogger("tidemark.coordinator")


class Refusals:
    """Keeps `Observed.trouble`. Used by the coordinator's loop alone."""

    def __init__(self, seen: Observed, clock: Clock, place: str) -> None:
        """``place``: where the table's storage is."""
        self._seen = seen
        self._clock = clock
        self._place = place
        self._shown_until_s = 0.0
        self._said: str | None = None

    def note(self, error: Exception) -> None:
        """Notes what refuses, by the kind of the error; logs each cause once. The loop tries again."""
        by_kafka = isinstance(error, REFUSED)
        who, todo = f"the table's storage ({self._place})", "free or repair what that names"
        if by_kafka:
            who, todo = "Kafka", "set right what that names, if it does not pass by itself"
            self._shown_until_s = self._clock.monotonic_s() + SHOWN_S
        trouble = (
            f"{who} refuses: {error}. Tagging rests, all input is kept: {todo}; the coordinator tries again "
            "by itself"
        )
        if trouble not in (self._seen.trouble, self._said):
            _log.error("%s", trouble)
        self._seen.trouble = self._said = trouble
        self._seen.trouble_of_kafka = by_kafka

    def step_done(self) -> None:
        """A step was carried out: nothing refuses any more."""
        if self._clock.monotonic_s() >= self._shown_until_s:
            self._seen.trouble = None
