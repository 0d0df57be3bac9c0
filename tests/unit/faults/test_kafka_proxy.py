"""The proxy of the fault tests: addresses of brokers in answers of every form."""

from __future__ import annotations

import struct

import pytest

from tests.faults.kafka_addresses import rewrite_addresses
from tests.faults.kafka_proxy import Fault, Rule
from tests.faults.kafka_wire import Api, Request, error_codes, parse_request
from tests.faults.link import Address

BROKER, PROXY = Address("kafka-1.internal", 9092), Address("127.0.0.1", 40_001)


def plain(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def compact(text: str | None) -> bytes:
    return b"\0" if text is None else bytes([len(text) + 1]) + text.encode()


def frame(*parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack(">i", len(content)) + content


def broker(address: Address, rack: bool = True) -> bytes:
    """Flexible form, with its empty tags."""
    place = struct.pack(">i", 1) + compact(address.host) + struct.pack(">i", address.port)
    return place + (compact(None) if rack else b"") + b"\0"


CORRELATION, THROTTLE, NO_TAGS = struct.pack(">i", 7), struct.pack(">i", 0), b"\0"
REST = b"\x05\x06\x07"


def metadata(version: int, address: Address) -> bytes:
    if version >= 9:
        return frame(CORRELATION, NO_TAGS, THROTTLE, b"\x02", broker(address), REST)
    place = struct.pack(">i", 1) + plain(address.host) + struct.pack(">i", address.port) + plain(None)
    return frame(CORRELATION, THROTTLE if version >= 3 else b"", struct.pack(">i", 1), place, REST)


def coordinator(version: int, address: Address) -> bytes:
    text = compact if version >= 3 else plain
    place = struct.pack(">i", 1) + text(address.host) + struct.pack(">i", address.port)
    code = struct.pack(">h", 0)
    if version >= 4:
        one = compact("orders-assign-0") + place + code + compact(None) + NO_TAGS
        return frame(CORRELATION, NO_TAGS, THROTTLE, b"\x02", one, NO_TAGS)
    if version == 0:
        return frame(CORRELATION, code, place)
    tags = NO_TAGS if version >= 3 else b""
    return frame(CORRELATION, tags, THROTTLE, code, text(None), place, tags)


def tagged_endpoints(address: Address) -> bytes:
    content = b"\x02" + broker(address)
    return b"\x01\x00" + bytes([len(content)]) + content


def produced(address: Address, code: int = 6) -> bytes:
    leader = b"\x01\x00\x09" + struct.pack(">ii", 1, 5) + NO_TAGS
    offsets = struct.pack(">qqq", -1, -1, -1)
    partition = struct.pack(">ih", 0, code) + offsets + b"\x01" + compact(None) + leader
    topics = b"\x02" + compact("orders.data") + b"\x02" + partition + NO_TAGS
    return frame(CORRELATION, NO_TAGS, topics, THROTTLE, tagged_endpoints(address))


def fetched(address: Address) -> bytes:
    aborted = b"\x02" + struct.pack(">qq", 3, 4) + NO_TAGS
    partition = struct.pack(">ihqqq", 0, 6, 9, 9, 0) + aborted + struct.pack(">i", -1) + b"\x03ab" + NO_TAGS
    topics = b"\x02" + bytes(16) + b"\x02" + partition + NO_TAGS
    head = THROTTLE + struct.pack(">hi", 0, 0)
    return frame(CORRELATION, NO_TAGS, head, topics, tagged_endpoints(address))


def described(address: Address) -> bytes:
    head = THROTTLE + struct.pack(">h", 0) + compact(None) + compact("cluster") + struct.pack(">i", 1)
    return frame(CORRELATION, NO_TAGS, head, b"\x02", broker(address), REST)


@pytest.mark.parametrize(
    ("api", "version", "answer"),
    [
        *((Api.METADATA, version, lambda to, v=version: metadata(v, to)) for version in (1, 3, 8, 9, 12, 13)),
        *((Api.FIND_COORDINATOR, version, lambda to, v=version: coordinator(v, to)) for version in range(7)),
        (Api.PRODUCE, 10, produced),
        (Api.FETCH, 16, fetched),
        (Api.DESCRIBE_CLUSTER, 0, described),
    ],
)
def test_addresses_in_answers_become_the_proxys(api: Api, version: int, answer):
    asked: list[Address] = []

    def proxied(address: Address) -> Address:
        asked.append(address)
        return PROXY

    request = Request(api, version, 7, "tidemark")
    assert rewrite_addresses(request, answer(BROKER), proxied) == answer(PROXY)
    assert asked == [BROKER]


def test_answer_without_a_broker_stays():
    request = Request(Api.FIND_COORDINATOR, 2, 7, "tidemark")
    nobody = coordinator(2, Address("", -1))
    assert rewrite_addresses(request, nobody, lambda _: PROXY) == nobody
    fetch = Request(Api.FETCH, 11, 7, "tidemark")
    assert rewrite_addresses(fetch, frame(CORRELATION, REST), lambda _: PROXY) == frame(CORRELATION, REST)


def test_requests_of_transactions_say_whose_they_are():
    head = struct.pack(">hhi", Api.END_TXN, 1, 7) + plain("tidemark")
    end = parse_request(frame(head, plain("orders-assign-0"), struct.pack(">qhb", 9, 3, 1)))
    assert (end.transactional_id, end.commits, end.correlation_id) == ("orders-assign-0", True, 7)
    head = struct.pack(">hhi", Api.PRODUCE, 10, 8) + plain("tidemark") + NO_TAGS
    body = compact("orders-assign-0") + struct.pack(">hi", -1, 1000) + b"\x02" + compact("orders.data") + REST
    produce = parse_request(frame(head, body))
    assert (produce.transactional_id, produce.topic) == ("orders-assign-0", "orders.data")
    head = struct.pack(">hhi", Api.API_VERSIONS, 3, 9) + plain(None)
    assert parse_request(frame(head, REST)).client_id is None


def test_error_codes_are_found():
    end = Request(Api.END_TXN, 1, 7, "tidemark")
    assert error_codes(end, frame(CORRELATION, THROTTLE, struct.pack(">h", 47))) == [47]
    assert error_codes(Request(Api.PRODUCE, 10, 7, "tidemark"), produced(BROKER, 45)) == [45]


def test_rule_that_holds_nothing_any_more_releases_nothing():
    """Two connections may find the same held request due; the later one has nothing to let go."""
    assert Rule(Api.END_TXN, Fault.HOLD).release() == []
