"""What is asked about a table's dead letters, page by page: for the admin service and the command line.

Needs Kafka alone. Every question reads the whole topic, for a letter's note of a replay comes after it; what
is held of it is one page, and the ids that were replayed.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidemark.commit_coordinator.dead_letters.replay import ReplayPlan, plan_replay, replay
from tidemark.commit_coordinator.refusals import ReplayRunningError
from tidemark.ledger_client.dead_letters import (
    DeadLetter,
    LetterFilter,
    LetterPage,
    LetterRetention,
    dead_letter_messages,
    read_dead_letter,
    replayed_in,
)
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient, Message

PAGE_BYTES_MAX: Final = 3 << 20
_LETTER_BYTES: Final = 100
"""Of a letter beside its texts, in a message; more than it is."""


@dataclass(frozen=True)
class ReplayPage:
    """What one page of a replay did; `newer` is after what to go on, None at the end. `end` is the offset
    before which all pages of this replay stay.
    """

    plan: ReplayPlan
    replayed: int
    newer: int | None
    end: int


class DeadLetterQueries:
    """Thread-safe; one replay at a time."""

    def __init__(
        self,
        client: KafkaClient,
        table: str,
        topics: Sequence[str],
        clock: Clock,
        retention: Callable[[], LetterRetention] = LetterRetention,
    ) -> None:
        """`topics`: the table's input topics, to which records may go back. `retention` asks Kafka."""
        self._retention = retention
        self._client = client
        self._table = table
        self._topics = topics
        self._clock = clock
        self._replaying = threading.Lock()

    def page(self, wanted: LetterFilter, size: int, below: int | None = None) -> LetterPage:
        """The newest letters below an id. Raises DeadlineExceededError, KafkaError."""
        kept: deque[DeadLetter] = deque()
        held_bytes, dropped = 0, False
        by_reason: Counter[str] = Counter()
        replayed: set[int] = set()
        for letter in self._letters(wanted, replayed):
            by_reason[letter.reason] += 1
            if below is not None and letter.id >= below:
                continue
            kept.append(letter)
            held_bytes += _bytes_of(letter)
            while len(kept) > size or (held_bytes > PAGE_BYTES_MAX and len(kept) > 1):
                held_bytes -= _bytes_of(kept.popleft())
                dropped = True
        letters = _marked(kept, replayed)
        older = letters[0].id if dropped and letters else None
        counts = dict(sorted(by_reason.items()))
        return LetterPage(by_reason.total(), counts, letters, older, self._retention())

    def show(self, letter_id: int) -> Message | None:
        """One letter, content and all; None when there is none of this id."""
        return read_dead_letter(self._client, self._table, self._clock, letter_id)

    def replay(
        self,
        wanted: LetterFilter,
        size: int,
        *,
        dry_run: bool,
        again: bool,
        replays_max: int,
        after: int = -1,
        end: int | None = None,
    ) -> ReplayPage:
        """Looks at the oldest letters above `after` and below `end`, and produces their records again.

        `end` None: what is there now. Raises ReplayRunningError, DeadlineExceededError, KafkaError: what was
        not noted as replayed by then was not produced.
        """
        if not self._replaying.acquire(blocking=False):
            raise ReplayRunningError
        try:
            page, newer, end = self._next(wanted, size, after, end)
            plan = self._planned(page, again, replays_max)
            done = 0 if dry_run else replay(self._client, self._table, self._clock, plan.letters)
            return ReplayPage(plan, done, newer, end)
        finally:
            self._replaying.release()

    def _next(
        self, wanted: LetterFilter, size: int, after: int, end: int | None
    ) -> tuple[list[DeadLetter], int | None, int]:
        page: list[DeadLetter] = []
        held_bytes, newer, last = 0, None, -1
        replayed: set[int] = set()
        for letter in self._letters(wanted, replayed):
            last = letter.id
            if letter.id <= after or (end is not None and letter.id >= end) or newer is not None:
                continue
            held_bytes += _bytes_of(letter)
            if page and (len(page) >= size or held_bytes > PAGE_BYTES_MAX):
                newer = page[-1].id
                continue
            page.append(letter)
        return _marked(page, replayed), newer, last + 1 if end is None else end

    def _planned(self, letters: Sequence[DeadLetter], again: bool, replays_max: int) -> ReplayPlan:
        admin = self._client.admin()
        try:
            return plan_replay(letters, admin.partitions, self._topics, again, replays_max)
        finally:
            admin.close()

    def _letters(self, wanted: LetterFilter, replayed: set[int]) -> Iterator[DeadLetter]:
        """Those that fit, oldest first; ids that notes name are added to `replayed` as they come."""
        for message in dead_letter_messages(self._client, self._table, self._clock):
            noted = replayed_in(message)
            if noted is not None:
                replayed |= noted
                continue
            letter = DeadLetter.of(message)
            if wanted.takes(letter):
                yield letter


def _marked(letters: Sequence[DeadLetter] | deque[DeadLetter], replayed: set[int]) -> list[DeadLetter]:
    return [replace(each, replayed=True) if each.id in replayed else each for each in letters]


def _bytes_of(letter: DeadLetter) -> int:
    texts = (letter.reason, letter.topic, letter.detail)
    return _LETTER_BYTES + sum(len(text.encode()) for text in texts)
