"""What brokers answer to the campaign's questions for transactions, right and damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.chaos import stand_still, transactions
from tests.chaos.stand_still import kafka_now
from tests.chaos.transactions import OpenProducer, Transaction, list_transactions, open_producers

BROKER = "127.0.0.1:9092"
HEAD = struct.pack(">iB", 7, 0)
THROTTLE, NO_TAGS, ONE, TWO, NONE = struct.pack(">i", 0), b"\0", b"\2", b"\3", b"\0"


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def frame(*parts: bytes) -> bytes:
    content = HEAD + b"".join(parts)
    return struct.pack(">i", len(content)) + content


def transaction(identity: str, producer: int, state: str) -> bytes:
    return compact(identity) + struct.pack(">q", producer) + compact(state) + NO_TAGS


def producer(number: int, epoch: int, last_ms: int, first: int) -> bytes:
    return struct.pack(">qiiqiq", number, epoch, 5, last_ms, 6, first) + NO_TAGS


LISTED = frame(
    THROTTLE,
    struct.pack(">h", 0),
    ONE + compact("Unknown"),
    TWO + transaction("orders-1", 4_000, "Ongoing") + transaction("orders-2", 4_001, "Empty"),
    NO_TAGS,
)
DESCRIBED = frame(
    THROTTLE,
    ONE + compact("orders.data"),
    TWO + struct.pack(">ih", 0, 0) + NONE + TWO + producer(9, 1, 77, 30) + producer(8, 0, 66, -1) + NO_TAGS,
    struct.pack(">ih", 1, 0) + NONE + b"\1" + NO_TAGS,
    NO_TAGS + NO_TAGS,
)
LANES = [("orders.data", 0), ("orders.data", 1)]
ASK: list[tuple[Callable[[], object], bytes]] = [
    (lambda: list_transactions(BROKER), LISTED),
    (lambda: open_producers(BROKER, LANES), DESCRIBED),
]


def answers(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(transactions, "_asked", lambda broker, api, body: content)


def test_transactions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, LISTED)
    assert list_transactions(BROKER) == [
        Transaction("orders-1", 4_000, "Ongoing"),
        Transaction("orders-2", 4_001, "Empty"),
    ]


def test_producers_with_an_open_transaction_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, DESCRIBED)
    assert open_producers(BROKER, LANES) == [OpenProducer("orders.data:0", 9, 1, 77, 30)]


def test_a_broker_that_is_loading_them_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, frame(THROTTLE, struct.pack(">h", 14)))
    with pytest.raises(ConnectionError, match="error 14"):
        list_transactions(BROKER)


@pytest.mark.parametrize(("ask", "whole"), ASK)
def test_an_answer_that_was_cut_off_is_an_error_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object], whole: bytes
) -> None:
    # The very last byte ends the whole answer, and is not read.
    for length in range(len(whole) - 1):
        answers(monkeypatch, whole[:length])
        with pytest.raises(ConnectionError, match="not of the form that was asked for"):
            ask()


def test_a_round_that_failed_tells_of_an_answer_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    monkeypatch.setattr(stand_still, "topic_ends", lambda brokers: {"orders.data:0": (3, 5)})
    said = kafka_now(f"{BROKER},127.0.0.1:9093")
    assert "orders.data:0: 3 of 5 can be read" in said
    assert said.count("does not tell its transactions: the answer is not of the form") == 2
