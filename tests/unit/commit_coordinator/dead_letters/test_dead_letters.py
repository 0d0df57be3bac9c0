"""Dead letters on an in-memory broker: what they keep of a record, and how it comes back into its topic."""

from __future__ import annotations

import json

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tidemark.cli.commands.dead_letter import _shown as shown
from tidemark.commit_coordinator.admin.messages import letter_message
from tidemark.commit_coordinator.dead_letters.replay import ReplayPlan, plan_replay, replay
from tidemark.console.admin_client import letter_of
from tidemark.console.output import printable
from tidemark.epoch_protocol.dead_letter_headers import HEADER_REPLAYS
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.ledger_client.dead_letters import DeadLetter, LetterFilter, read_dead_letter, read_dead_letters
from tidemark.record_formats.refusals import DeadLetterReason, OtherReason, Refusal
from tidemark.stream_runtime.kafka.errors import AbortableError, KafkaError
from tidemark.stream_runtime.kafka.ports import Headers, Message, TopicPartition, TopicSpec

LETTERS = TopicPartition("orders.dead-letter", 0)


class Table:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, SeededIds(1))
        self.client = MemoryKafkaClient(self.broker)
        self.client.admin().create_topics([TopicSpec("in", 2), TopicSpec(LETTERS.topic, 1)])

    def refuse(
        self,
        value: bytes | None,
        key: bytes | None = b"k",
        headers: Headers = (),
        partition: int = 1,
        offset: int = 7,
        reason: DeadLetterReason = DeadLetterReason.NOT_JSON,
        limit: int = 1 << 20,
    ) -> None:
        """What the shuffle stage publishes for one refused record."""
        message = Message("in", partition, offset, key, value, headers, 1_234)
        (letter,) = dead_letters([message], [Refusal(0, reason, "why")], LETTERS.topic, limit)
        self.broker.produce(LETTERS, letter.key, letter.value, letter.headers)

    def letters(self) -> list[DeadLetter]:
        return read_dead_letters(self.client, "orders", self.clock)

    def plan(self, again: bool = False, most: int = 3) -> ReplayPlan:
        return plan_replay(self.letters(), self.client.admin().partitions, ["in"], again, most)

    def replay(self, **how: bool) -> int:
        return replay(self.client, "orders", self.clock, self.plan(**how).letters)

    def input(self, partition: int = 1) -> list[Message]:
        reader = self.client.partition_reader()
        reader.assign({TopicPartition("in", partition): 0})
        return reader.poll(1_000, 0.0)


def test_a_letter_keeps_all_of_its_record():
    table = Table()
    table.refuse(b"\xff{", b"k", (("trace", b"\x01\x02"), ("tm-reason", b"the record's own")))
    (letter,) = table.letters()
    assert letter.reason is DeadLetterReason.NOT_JSON
    assert (letter.topic, letter.partition, letter.offset) == ("in", 1, 7)
    assert (letter.id, letter.timestamp_ms, letter.cut, letter.replays, letter.replayed) == (
        0,
        1_234,
        (),
        0,
        False,
    )


def test_a_replayed_record_is_the_same_again_but_for_the_count_of_its_replays():
    table = Table()
    headers = (("trace", b"\x01\x02"), ("trace", b"again"), ("tm-reason", b"its own"))
    table.refuse(b"\xff{", b"k", headers)
    table.refuse(None, None, partition=0)
    assert table.replay() == 2
    (record,) = table.input(1)
    assert (record.key, record.value) == (b"k", b"\xff{")
    assert record.headers == (*headers, (HEADER_REPLAYS, b"1"))
    (null,) = table.input(0)
    assert (null.key, null.value, null.headers) == (None, None, ((HEADER_REPLAYS, b"1"),))


def test_what_was_replayed_is_noted_and_left_out_the_next_time():
    table = Table()
    table.refuse(b"a")
    table.replay()
    table.refuse(b"b")
    assert [(each.id, each.replayed) for each in table.letters()] == [(0, True), (3, False)]
    assert [why for _, why in table.plan().skipped] == ["it was replayed already (--again)"]
    assert table.replay() == 1
    assert table.replay() == 0
    assert [record.value for record in table.input()] == [b"a", b"b"]
    assert table.replay(again=True) == 2
    assert len(table.letters()) == 2


def test_a_record_that_fails_again_is_replayed_a_few_times_only():
    table = Table()
    table.refuse(b"bad")
    for replays in range(1, 4):
        assert table.replay() == 1
        record = table.input()[-1]
        assert record.headers == ((HEADER_REPLAYS, str(replays).encode()),)
        table.refuse(record.value, record.key, record.headers, record.partition, record.offset)
    plan = table.plan()
    assert plan.letters == []
    assert "3 times already" in plan.skipped[-1][1]
    assert len(table.plan(most=4).letters) == 1


def test_what_is_not_whole_or_has_no_place_any_more_is_left_out_with_the_reason():
    table = Table()
    table.refuse(b"x" * 100, limit=10)
    table.refuse(b"x", headers=(("large", b"x" * 100_000),))
    table.refuse(b"x", partition=5)
    plan = table.plan()
    assert plan.letters == []
    assert [why for _, why in plan.skipped] == [
        "its value did not fit into the dead letter",
        "its headers did not fit into the dead letter",
        "its partition does not exist any more",
    ]
    elsewhere = plan_replay(table.letters(), table.client.admin().partitions, ["other"], False, 3)
    assert {why for _, why in elsewhere.skipped} == {
        "its value did not fit into the dead letter",
        "its headers did not fit into the dead letter",
        "its topic is no input topic of the table",
    }


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (LetterFilter(), [0, 1, 2]),
        (LetterFilter(reason=DeadLetterReason.BAD_KEY), [1]),
        (LetterFilter(partition=0), [2]),
        (LetterFilter(partition=1, offset=9), [1]),
        (LetterFilter(topic="other"), []),
        (LetterFilter(ids=frozenset({0, 2, 99})), [0, 2]),
    ],
)
def test_filters_take_letters_that_have_all_that_is_named(wanted: LetterFilter, ids: list[int]):
    table = Table()
    table.refuse(b"a")
    table.refuse(b"b", reason=DeadLetterReason.BAD_KEY, offset=9)
    table.refuse(b"c", partition=0)
    assert [each.id for each in table.letters() if wanted.takes(each)] == ids


def test_a_replay_that_cannot_be_committed_leaves_nothing_behind():
    table = Table()
    table.refuse(b"a")
    plan = table.plan()
    first = table.client.producer("orders-replay")
    first.init()
    first.begin()
    first.produce(TopicPartition("in", 1), b"half", b"k")
    first.flush()
    assert replay(table.client, "orders", table.clock, plan.letters) == 1
    with pytest.raises((AbortableError, KafkaError)):
        first.commit()
    assert [record.value for record in table.input()] == [b"a"]


def test_one_letter_is_read_by_its_id():
    table = Table()
    table.refuse(b"a")
    table.refuse(b"b")
    table.replay()
    found = read_dead_letter(table.client, "orders", table.clock, 1)
    assert found is not None
    assert found.value == b"b"
    assert read_dead_letter(table.client, "orders", table.clock, 2) is None
    assert read_dead_letter(table.client, "orders", table.clock, 99) is None


def test_there_are_no_letters_while_there_is_no_topic():
    client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
    assert read_dead_letters(client, "orders", ManualClock()) == []


def test_letters_that_others_wrote_are_shown_as_far_as_they_go():
    table = Table()
    table.broker.produce(LETTERS, None, b"x", (("tm-partition", b"many"), ("tm-offset", b"\xff")))
    (letter,) = table.letters()
    assert (letter.reason, letter.partition, letter.offset) == (OtherReason("?"), -1, -1)
    assert json.dumps(letter.document())


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed():
    assert printable("plain é 😀") == "plain é 😀"
    assert printable("a\x1b[2Jb\nc\u202e") == "a\\x1b[2Jb\\nc\\u202e"
    assert shown(b"\x1b[31m") == "\\x1b[31m"
    assert shown(b"\xff\x00") == "0xff00"
    assert shown(None) == "(null)"
    assert len(shown(b"x" * 10_000)) < 4_100


@pytest.mark.parametrize(
    ("header", "replays"),
    [
        (b"-1", 0),
        (b"3", 3),
        (b"9" * 30, 0),
        (b"9" * 5_000, 0),
        (b"2147483648", 2**31 - 1),
        (b"\xff", 0),
        (b"", 0),
    ],
)
def test_a_count_of_replays_that_a_stranger_wrote_spoils_no_page(header: bytes, replays: int) -> None:
    letter = DeadLetter.of(
        Message(
            "t.dead-letter", 0, 7, None, b"{", (("tm-header-tm-replays", header), ("tm-offset", b"9" * 30))
        )
    )
    assert (letter.replays, letter.offset) == (replays, -1)
    assert letter_of(letter_message(letter)) == letter
