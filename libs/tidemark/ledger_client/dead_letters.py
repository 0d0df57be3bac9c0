"""A table's dead letters: what one is, which are asked for, and reading `<table>.dead-letter`.

Coordinator and command line read the topic alike. Its headers are described in
`index_assigner.shuffle.dead_letters`.

The topic may be larger than memory: what is kept of all letters has no content, and one letter's content is
read by its id, which is its offset in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidemark.epoch_protocol.dead_letter_headers import (
    HEADER_CUT_HEADERS,
    HEADER_CUT_KEY,
    HEADER_CUT_VALUE,
    HEADER_DETAIL,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_REPLAYED,
    HEADER_REPLAYS,
    HEADER_TIMESTAMP,
    HEADER_TOPIC,
    ORIGINAL_PREFIX,
)
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.refusals import Reason, reason_named
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import (
    OFFSET_BEGINNING,
    Headers,
    Isolation,
    KafkaClient,
    Message,
    TopicPartition,
)
from tidemark.stream_runtime.retry import Deadline
from tidemark.stream_runtime.rpc.interceptors import left_s

PAGE_MAX: Final = 10_000
_POLL_MESSAGES: Final = 2_000
_POLL_S: Final = 0.2
_TIMEOUT_S: Final = 120.0
_NUMBER_MAX: Final = 2**63 - 1
_REPLAYS_MAX: Final = 2**31 - 1
_CUT: Final = {HEADER_CUT_KEY: "key", HEADER_CUT_VALUE: "value", HEADER_CUT_HEADERS: "headers"}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record: why, and where it lies in the input.

    ``id``: its offset in the dead-letter topic. ``cut``: which parts of it are not whole here. ``replays``:
    how often the record had been produced again when it was refused; ``replayed``: this letter was since.
    """

    reason: Reason
    topic: str
    partition: int
    offset: int
    detail: str
    id: int = -1
    timestamp_ms: int = -1
    cut: tuple[str, ...] = ()
    replays: int = 0
    replayed: bool = False

    @classmethod
    def of(cls, message: Message) -> DeadLetter:
        """From a message of the dead-letter topic; headers that are missing read as "?" and -1."""
        headers = {name: value for name, value in message.headers if not name.startswith(ORIGINAL_PREFIX)}
        texts = {name: (value or b"").decode("utf-8", "replace") for name, value in headers.items()}
        return cls(
            reason_named(texts.get(HEADER_REASON, "?")),
            texts.get(HEADER_TOPIC, "?"),
            _number(texts.get(HEADER_PARTITION), -1),
            _number(texts.get(HEADER_OFFSET), -1),
            texts.get(HEADER_DETAIL, ""),
            message.offset,
            _number(texts.get(HEADER_TIMESTAMP), -1),
            tuple(part for name, part in _CUT.items() if name in texts),
            replays_of(original_headers(message)),
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "reason": str(self.reason),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "detail": self.detail,
            "timestamp_ms": self.timestamp_ms,
            "cut": list(self.cut),
            "replays": self.replays,
            "replayed": self.replayed,
        }


@dataclass(frozen=True, slots=True)
class WholeLetter:
    """A letter with the refused record's own key, value and headers."""

    letter: DeadLetter
    key: bytes | None
    value: bytes | None
    headers: Headers

    @classmethod
    def of(cls, message: Message) -> WholeLetter:
        """Parses one message of `<table>.dead-letter`."""
        return cls(DeadLetter.of(message), message.key, message.value, original_headers(message))


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant; None: any. ``since_ms``: refused then (Unix epoch) or later.

    Little of a large topic is read where it names a time or ``ids``: from there on, or from the least id.
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    reason: Reason | None = None
    ids: frozenset[int] | None = None
    since_ms: int | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether all that is named fits."""
        wanted = (
            (self.topic, letter.topic),
            (self.partition, letter.partition),
            (self.offset, letter.offset),
            (self.reason, letter.reason),
        )
        named = self.ids is None or letter.id in self.ids
        return named and all(asked is None or asked == its for asked, its in wanted)


@dataclass(frozen=True)
class LetterRetention:
    """Counts are offsets: notes of replays and transactions' markers are among them."""

    kept: int = 0
    expiring: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class LetterPage:
    """`count` and `by_reason` are of all that fit the filter, `letters` (oldest first) the newest of them
    below the asked id; `older` is below what to go on, None when there are no more.
    """

    count: int
    by_reason: dict[Reason, int]
    letters: list[DeadLetter]
    older: int | None
    retention: LetterRetention = field(default_factory=LetterRetention)


@dataclass
class Replayed:
    """What a replay did, over all its pages; letters oldest first."""

    done: int = 0
    chosen: list[DeadLetter] = field(default_factory=list)
    skipped: list[tuple[DeadLetter, str]] = field(default_factory=list)


def original_headers(message: Message) -> Headers:
    """The headers of the refused record itself."""
    prefix = len(ORIGINAL_PREFIX)
    return tuple(
        (name[prefix:], value) for name, value in message.headers if name.startswith(ORIGINAL_PREFIX)
    )


def replays_of(headers: Headers) -> int:
    """How often a record of an input topic was produced again."""
    for name, value in headers:
        if name == HEADER_REPLAYS:
            # Anybody may write such a header: what is no count is none.
            return min(max(_number((value or b"").decode("utf-8", "replace"), 0), 0), _REPLAYS_MAX)
    return 0


def read_dead_letters(client: KafkaClient, table: str, clock: Clock) -> list[DeadLetter]:
    """All dead letters of a table, oldest first; none while the topic does not exist.

    Raises DeadlineExceededError when an open transaction hides the end, KafkaError.
    """
    letters: list[DeadLetter] = []
    replayed: set[int] = set()
    for message in dead_letter_messages(client, table, clock):
        noted = replayed_in(message)
        if noted is None:
            letters.append(DeadLetter.of(message))
        else:
            replayed |= noted
    return [replace(letter, replayed=True) if letter.id in replayed else letter for letter in letters]


def all_letters(ask: Callable[[int | None], LetterPage], limit: int) -> LetterPage:
    """The newest `limit` letters, over as many pages as it takes; counts are those of the first page."""
    first = ask(None)
    letters, older = first.letters, first.older
    while older is not None and len(letters) < limit:
        page = ask(older)
        letters, older = [*page.letters, *letters], page.older
    return replace(first, letters=letters[-limit:], older=older)


def dead_letter_messages(
    client: KafkaClient,
    table: str,
    clock: Clock,
    first: int = OFFSET_BEGINNING,
    since_ms: int | None = None,
) -> Iterator[Message]:
    """The messages of the topic from an offset, and a time (Unix epoch), to the end that it has now, notes of
    replays among them. Raises DeadlineExceededError where reading them takes longer than two minutes.
    """
    topic = TopicNames(table).dead_letter
    partition = TopicPartition(topic, 0)
    admin = client.admin()
    try:
        if not admin.partitions(topic):
            return
        end = admin.end_offset(partition, Isolation.READ_COMMITTED)
        first = max(first, admin.start_offset(partition))
        if since_ms is not None:
            first = max(first, admin.offsets_for_time([partition], since_ms)[partition])
    finally:
        admin.close()
    if first >= end:
        return
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    deadline = Deadline(clock, left_s(_TIMEOUT_S))
    try:
        reader.assign({partition: first})
        while reader.position(partition) < end:
            deadline.check(f"reading {topic} (ids, or a time with --since, say that less of it is meant)")
            yield from reader.poll(_POLL_MESSAGES, _POLL_S)
    finally:
        reader.close()


def read_dead_letter(client: KafkaClient, table: str, clock: Clock, letter_id: int) -> Message | None:
    """The message of one letter, content and all; None when there is none of this id."""
    for message in dead_letter_messages(client, table, clock, letter_id):
        there = message.offset == letter_id and replayed_in(message) is None
        return message if there else None
    return None


def replayed_in(message: Message) -> set[int] | None:
    """The ids that a note of a replay names; None for a letter."""
    if not any(name == HEADER_REPLAYED for name, _ in message.headers):
        return None
    try:
        return {int(offset) for offset in json.loads(message.value or b"[]")}
    except (ValueError, TypeError):
        return set()


def _number(text: str | None, default: int) -> int:
    try:
        number = default if text is None else int(text)
    except ValueError:
        return default
    return number if -1 <= number <= _NUMBER_MAX else default
