"""Queries of a table's dead letters, page by page, for the admin service and the command line.

They need Kafka alone. A query reads from the first letter that may be meant to the end of the topic, because
the note that a letter was replayed comes after the letter. The pages of a replay do that once, not each. In
memory are only one page and the ids of replayed letters.
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
from tidemark.record_formats.refusals import Reason
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient, Message

PAGE_BYTES_MAX: Final = 3 << 20
_LETTER_BYTES: Final = 100
"""An upper limit for a letter's bytes in a message besides its texts."""


@dataclass(frozen=True)
class ReplayPage:
    """The result of one page of a replay.

    `newer`: the id after which the next page begins, None after the last page. `end`: the offset before which
    all pages of this replay end.
    """

    plan: ReplayPlan
    replayed: int
    newer: int | None
    end: int


class _Notes:
    """``ids``: what the notes of replays name that stand at ``begun`` or behind, and before ``read_to``."""

    def __init__(self) -> None:
        self.begun: int | None = None
        self.read_to = 0
        self.ids: set[int] = set()

    def hold_from(self, first: int) -> bool:
        """Whether no note of a letter from ``first`` on is missing before ``read_to``: notes follow letters.
        Reading goes on at ``first``: behind ``read_to`` it would leave a gap.
        """
        return self.begun is not None and self.begun <= first <= self.read_to

    def letter_of(self, message: Message) -> DeadLetter | None:
        """The letter; None for a note, whose ids are taken."""
        if self.begun is None:
            self.begun = message.offset
        self.read_to = max(self.read_to, message.offset + 1)
        noted = replayed_in(message)
        if noted is None:
            return DeadLetter.of(message)
        self.ids |= noted
        return None


class DeadLetterQueries:
    """Pages of dead letters, and replays, of which one runs at a time; thread-safe."""

    def __init__(
        self,
        client: KafkaClient,
        table: str,
        topics: Sequence[str],
        clock: Clock,
        retention: Callable[[], LetterRetention] = LetterRetention,
    ) -> None:
        """`topics`: the table's input topics, into which records are replayed. `retention` asks Kafka."""
        self._retention = retention
        self._client = client
        self._table = table
        self._topics = topics
        self._clock = clock
        self._replaying = threading.Lock()
        self._notes = _Notes()

    def page(self, wanted: LetterFilter, size: int, below: int | None = None) -> LetterPage:
        """The newest `size` letters with ids below `below`, and counts by reason of all letters that fit.

        A page also ends at `PAGE_BYTES_MAX`. Raises DeadlineExceededError, KafkaError.
        """
        kept: deque[DeadLetter] = deque()
        held_bytes, dropped = 0, False
        by_reason: Counter[Reason] = Counter()
        notes = _Notes()
        for message in self._messages(wanted):
            letter = notes.letter_of(message)
            if letter is None or not wanted.takes(letter):
                continue
            by_reason[letter.reason] += 1
            if below is not None and letter.id >= below:
                continue
            kept.append(letter)
            held_bytes += _bytes_of(letter)
            while len(kept) > size or (held_bytes > PAGE_BYTES_MAX and len(kept) > 1):
                held_bytes -= _bytes_of(kept.popleft())
                dropped = True
        letters = _marked(kept, notes.ids)
        older = letters[0].id if dropped and letters else None
        counts = dict(sorted(by_reason.items()))
        return LetterPage(by_reason.total(), counts, letters, older, self._retention())

    def show(self, letter_id: int) -> Message | None:
        """The letter's message with key, value and headers; None if there is no letter with this id."""
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
        """Replays one page: the oldest `size` letters with ids above `after` and below `end`.

        `end`: None for the end of the topic now. `dry_run`: only plans. `again`, `replays_max`: as in
        `plan_replay`. Raises ReplayRunningError, DeadlineExceededError, KafkaError; a record that was not
        noted as replayed by then was not produced either.
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
        """The page, after which letter the next one begins, and before which offset all pages end.

        The first page reads to the end of the topic, where the notes of its letters may be; further ones stop
        behind their letters, and then read only what came since.
        """
        page: list[DeadLetter] = []
        held_bytes, newer, last = 0, None, -1
        kept = self._notes if end is not None and self._notes.hold_from(after + 1) else None
        notes = kept or _Notes()
        for message in self._messages(wanted, after + 1):
            letter = notes.letter_of(message)
            if letter is None or not wanted.takes(letter):
                continue
            last = letter.id
            if newer is not None or (end is not None and letter.id >= end):
                if kept is not None:
                    break
                continue
            held_bytes += _bytes_of(letter)
            if page and (len(page) >= size or held_bytes > PAGE_BYTES_MAX):
                newer = page[-1].id
                continue
            page.append(letter)
        if kept is not None:
            for message in dead_letter_messages(self._client, self._table, self._clock, kept.read_to):
                kept.letter_of(message)
        self._notes = notes if newer is not None else _Notes()
        return _marked(page, notes.ids), newer, last + 1 if end is None else end

    def _planned(self, letters: Sequence[DeadLetter], again: bool, replays_max: int) -> ReplayPlan:
        admin = self._client.admin()
        try:
            return plan_replay(letters, admin.partitions, self._topics, again, replays_max)
        finally:
            admin.close()

    def _messages(self, wanted: LetterFilter, first: int = 0) -> Iterator[Message]:
        """The messages among which letters that fit, at ``first`` or behind, and their notes may be."""
        first = max(first, min(wanted.ids or (0,)))
        return dead_letter_messages(self._client, self._table, self._clock, first, wanted.since_ms)


def _marked(letters: Sequence[DeadLetter] | deque[DeadLetter], replayed: set[int]) -> list[DeadLetter]:
    return [replace(letter, replayed=True) if letter.id in replayed else letter for letter in letters]


def _bytes_of(letter: DeadLetter) -> int:
    texts = (letter.reason, letter.topic, letter.detail)
    return _LETTER_BYTES + sum(len(text.encode()) for text in texts)
