"""Queries of many dead letters read no more of the topic than they need, and find all notes of replays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tidemark.commit_coordinator.dead_letters import queries
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries, ReplayPage
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.ledger_client import dead_letters as letters
from tidemark.ledger_client.dead_letters import LetterFilter, dead_letter_messages
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition, TopicSpec

LETTERS = TopicPartition("orders.dead-letter", 0)
COUNT, SIZE = 100, 10


class Large:
    """A topic of `COUNT` letters, a second apart. ``read``: how many messages queries took from it."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, SeededIds(1))
        self.client = MemoryKafkaClient(self.broker)
        self.client.admin().create_topics([TopicSpec("in", 1), TopicSpec(LETTERS.topic, 1)])
        self.refuse(COUNT)
        self.queries = self.another()
        self.read = 0
        patched.setattr(queries, "dead_letter_messages", self._counted)

    def refuse(self, count: int) -> None:
        for number in range(count):
            self.clock.advance(1.0)
            message = Message("in", 0, number, b"k", b"{", (), 1_234)
            refusal = Refusal(0, DeadLetterReason.NOT_JSON, "why")
            (letter,) = dead_letters([message], [refusal], LETTERS.topic, 1 << 20)
            self.broker.produce(LETTERS, letter.key, letter.value, letter.headers)

    def another(self) -> DeadLetterQueries:
        """As another process has them."""
        return DeadLetterQueries(self.client, "orders", ["in"], self.clock)

    def _counted(self, *asked: Any) -> Iterator[Message]:
        for message in dead_letter_messages(*asked):
            self.read += 1
            yield message

    def page(self, wanted: LetterFilter | None = None, before: ReplayPage | None = None) -> ReplayPage:
        how: dict[str, Any] = {"dry_run": False, "again": False, "replays_max": 3}
        if before is not None:
            assert before.newer is not None
            how |= {"after": before.newer, "end": before.end}
        return self.queries.replay(wanted or LetterFilter(), SIZE, **how)

    def replay(self, wanted: LetterFilter | None = None) -> list[ReplayPage]:
        pages = [self.page(wanted)]
        while pages[-1].newer is not None:
            pages.append(self.page(wanted, pages[-1]))
        return pages


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Large:
    return Large(monkeypatch)


def ids_of(pages: list[ReplayPage]) -> list[int]:
    return [letter.id for page in pages for letter in page.plan.letters]


def skipped(pages: list[ReplayPage]) -> list[int]:
    return [letter.id for page in pages for letter, _ in page.plan.skipped]


def test_all_pages_of_a_replay_read_the_topic_about_once(large: Large) -> None:
    pages = large.replay()
    assert len(pages) == COUNT // SIZE
    assert ids_of(pages) == list(range(COUNT))
    assert large.read <= 3 * COUNT
    assert large.replay()[-1].newer is None
    assert ids_of(large.replay()) == []


def test_named_letters_are_read_from_the_first_of_them_on(large: Large) -> None:
    assert ids_of(large.replay(LetterFilter(ids=frozenset({95, 97})))) == [95, 97]
    assert large.read <= 5
    large.read = 0
    (found,) = large.queries.page(LetterFilter(ids=frozenset({97})), 5).letters
    assert found.replayed
    assert large.read <= 5


def test_letters_of_the_last_minutes_are_read_alone(large: Large) -> None:
    recent = LetterFilter(since_ms=large.clock.now_ms() - 4_000)
    page = large.queries.page(recent, 100)
    assert (page.count, [letter.id for letter in page.letters]) == (5, list(range(95, 100)))
    assert large.read == 5
    assert ids_of(large.replay(recent)) == list(range(95, 100))
    assert large.queries.page(LetterFilter(since_ms=large.clock.now_ms() + 1), 100).count == 0


def test_what_another_process_replays_between_two_pages_is_left_out(large: Large) -> None:
    first = large.page()
    named = LetterFilter(ids=frozenset({55}))
    assert large.another().replay(named, SIZE, dry_run=False, again=False, replays_max=3).replayed == 1
    pages = [first]
    while pages[-1].newer is not None:
        pages.append(large.page(None, pages[-1]))
    assert skipped(pages) == [55]
    assert len(ids_of(pages)) == COUNT - 1


def test_a_replay_of_fewer_letters_in_between_hides_no_note(large: Large) -> None:
    """It read from a later letter on: what it knows is not enough for the one that goes on."""
    named = LetterFilter(ids=frozenset({12}))
    assert large.another().replay(named, SIZE, dry_run=False, again=False, replays_max=3).replayed == 1
    first = large.page()
    late = LetterFilter(ids=frozenset(range(60, 75)))
    between = large.page(late)
    assert between.newer is not None
    pages = [first, large.page(None, first)]
    assert skipped(pages) == [12]
    while pages[-1].newer is not None:
        pages.append(large.page(None, pages[-1]))
    assert skipped(pages) == [12, *range(60, 70)]


def test_a_replay_that_goes_on_far_behind_leaves_no_gap_in_what_is_known(large: Large) -> None:
    """Its first pages were another process's, as after a restart of the coordinator."""
    first = large.page()
    large.refuse(COUNT)
    named = LetterFilter(ids=frozenset({95}))
    assert large.another().replay(named, SIZE, dry_run=False, again=False, replays_max=3).replayed == 1
    end = 3 * COUNT
    large.queries.replay(
        LetterFilter(), SIZE, dry_run=True, again=False, replays_max=3, after=2 * COUNT - 20, end=end
    )
    pages = [first]
    while pages[-1].newer is not None:
        pages.append(large.page(None, pages[-1]))
    assert skipped(pages) == [95]


def test_letters_that_come_meanwhile_belong_to_no_page(large: Large) -> None:
    first = large.page()
    large.refuse(5)
    pages = [first]
    while pages[-1].newer is not None:
        pages.append(large.page(None, pages[-1]))
    assert ids_of(pages) == list(range(COUNT))


def test_a_topic_that_cannot_be_read_in_time_says_how_less_of_it_is_meant(
    large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "_TIMEOUT_S", 0.0)
    with pytest.raises(DeadlineExceededError, match="--since"):
        large.queries.page(LetterFilter(), 10)
