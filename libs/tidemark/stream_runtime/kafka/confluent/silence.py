"""Tells when a consumer has stopped reading a partition without saying so.

librdkafka was seen to read nothing more of one partition of several after a broker's restart, for as long as
the process lived, without an error: the other partitions went on. So a partition from which nothing came for
a while is compared with its end. A look that finds the end behind the position is not enough, because what
lies there may have come a moment ago; two looks are, when nothing was waiting to be taken in between.

Example: position 20 680, end 22 943, nothing for ten seconds: the partition is doubted. Ten seconds later,
after at least one poll that found nothing at all, the position is 20 680 still: it is not being read.

The end is asked of the client that may not be reading, and that one may know no leader of the partition, or
no broker at all: a broker that is fenced answers that there are none. After that clients were seen to stay
silent for minutes, without an error and without a line in the log. So a client that gives no answer twice,
ten seconds apart, counts as one that is not reading:

* If nothing came of it in between, about no partition: it is not reading, or Kafka is away. Then another
  client does no harm.
* If it does read other partitions, it may have lost the leader of this one, or that leader is away, which may
  last for hours (one of three brokers, a topic without replicas). Another client fetches anew what this one
  holds of the others. So from one such time to the next it takes twice as long, 160 s at most, until
  something comes of the partition or its end is told: 20, 60, 140, 300, 460 s after the last message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from tidemark.stream_runtime.kafka.ports import TopicPartition

QUIET_S: Final = 10.0
"""After so long without an event a partition is looked at, and again after as long."""
APART_S: Final = 0.1
"""Looks are at least so far apart, whatever the number of partitions."""
_PATIENCE_S: Final = 2 * QUIET_S
_PATIENCE_MAX_S: Final = 160.0

EndOf = Callable[[TopicPartition], int | None]
"""partition -> the offset up to which it can be read now; None where Kafka does not say."""


class _Doubt(NamedTuple):
    """``position``: where reading stood; ``empty_polls``: how many polls had found nothing by then."""

    position: int
    empty_polls: int


class Silence:
    """Of one reader. ``now_s`` is monotonic."""

    def __init__(self) -> None:
        self._quiet_since_s: dict[TopicPartition, float] = {}
        self._doubts: dict[TopicPartition, _Doubt] = {}
        self._unanswered: set[TopicPartition] = set()
        self._heard = True
        self._given_up: TopicPartition | None = None
        self._patience_s = _PATIENCE_S
        self._patient_until_s = 0.0
        self._empty_polls = 0
        self._next_look_s = 0.0

    def begin(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """From now on these are read, from another position or with another client."""
        for partition in partitions:
            self._quiet_since_s[partition] = now_s
            self._doubts.pop(partition, None)
            self._unanswered.discard(partition)
            self._heard = True

    def read(self, partitions: Collection[TopicPartition], now_s: float) -> None:
        """Something came from these."""
        self.begin(partitions, now_s)
        for partition in partitions:
            self._end_patience(partition)

    def _end_patience(self, partition: TopicPartition) -> None:
        if partition == self._given_up:
            self._given_up, self._patience_s, self._patient_until_s = None, _PATIENCE_S, 0.0

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read no longer."""
        for partition in partitions:
            self._quiet_since_s.pop(partition, None)
            self._doubts.pop(partition, None)
            self._unanswered.discard(partition)
            self._end_patience(partition)

    def nothing_came(self) -> None:
        """A poll found no event of any partition."""
        self._empty_polls += 1

    def stuck(
        self, position_of: Callable[[TopicPartition], int], end_of: EndOf, now_s: float
    ) -> TopicPartition | None:
        """A partition that is not being read by this client; None where none is known to be.

        It looks at one partition at most, so call it after each poll.
        """
        if now_s < self._next_look_s or not self._quiet_since_s:
            return None
        partition, since_s = min(self._quiet_since_s.items(), key=lambda item: item[1])
        self._next_look_s = max(now_s + APART_S, since_s + QUIET_S)
        if now_s - since_s < QUIET_S:
            return None
        self._quiet_since_s[partition] = now_s
        position, end = position_of(partition), end_of(partition)
        doubt = self._doubts.pop(partition, None)
        if end is None:
            # Asking took its time, and asking for the next partition would as well.
            self._next_look_s = now_s + QUIET_S
            return self._without_answer(partition, now_s)
        self._unanswered.discard(partition)
        self._end_patience(partition)
        self._heard = True
        if end <= position:
            return None
        if doubt is not None and doubt.position == position and self._empty_polls > doubt.empty_polls:
            return partition
        self._doubts[partition] = _Doubt(position, self._empty_polls)
        return None

    def _without_answer(self, partition: TopicPartition, now_s: float) -> TopicPartition | None:
        """Notes that the client did not say the partition's end; returns the partition the second time.

        The first time may have been about another partition, if the client was not heard of in between. If it
        was, the patience must be over, too.
        """
        is_silent, again = not self._heard, partition in self._unanswered
        self._unanswered.add(partition)
        self._heard = False
        if is_silent:
            return partition
        if not again or now_s < self._patient_until_s:
            return None
        self._given_up = partition
        self._patience_s = min(2 * self._patience_s, _PATIENCE_MAX_S)
        self._patient_until_s = now_s + self._patience_s
        return partition
