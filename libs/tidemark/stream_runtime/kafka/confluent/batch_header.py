"""Reads the first and last offset of a record batch from its header, without unpacking its records.

librdkafka returns records and not the batch that holds them, and it unpacks whole batches. So this module
sends one Fetch request to the partition's leader itself, and reads only the first bytes of the answer.
Sources: https://kafka.apache.org/protocol.html and https://kafka.apache.org/documentation/#recordbatch

Supported are connections with and without TLS, and without SASL or with PLAIN and SCRAM. Another mechanism
(GSSAPI, OAUTHBEARER), or a setting of TLS or SASL that is not in `_SERVED`, raises HeaderUnavailableError.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple

from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.scram import ScramClient
from tidemark.stream_runtime.kafka.ports import TopicPartition

_FETCH: Final = 1
_FETCH_VERSION: Final = 4
"""The oldest version that all brokers support. With a small limit of bytes they answer one whole batch."""
_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_TIMEOUT_S: Final = 10.0
_WAIT_MS: Final = 1_000
_ANSWER_MAX: Final = 1 << 20
"""The most bytes that are read at once: answers to authentication, and the fields before the batch."""
_MAGIC: Final = 2
_BATCH: Final = struct.Struct(">qiibIhi")
_CLIENT: Final = b"tidemark-batch-header"
_TLS: Final = frozenset({"ssl", "sasl_ssl"})
_SERVED: Final = frozenset(
    {
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
    }
)


class BatchOffsets(NamedTuple):
    """The first and last offset of a record batch, both inclusive."""

    first: int
    last: int


class HeaderUnavailableError(Exception):
    """The header could not be read; the text says why."""


def batch_offsets(
    settings: Mapping[str, Any], leader: tuple[str, int], place: TopicPartition, offset: int
) -> BatchOffsets:
    """The offsets of the batch that holds ``offset``, or of the next batch if none holds it.

    ``settings`` are those of a librdkafka client; ``leader`` is host and port of the partition's leader.
    Raises HeaderUnavailableError, after a bounded time.
    """
    try:
        with _Connection(settings, leader) as connection:
            return connection.fetch(place, offset)
    except (OSError, struct.error, UnicodeError, ValueError) as error:
        raise HeaderUnavailableError(f"{type(error).__name__}: {error}") from error


class _Connection:
    def __init__(self, settings: Mapping[str, Any], leader: tuple[str, int]) -> None:
        protocol = str(settings.get("security.protocol", "plaintext")).lower()
        for key in settings:
            if key.startswith(("ssl.", "sasl.", "enable.ssl.")) and key not in _SERVED:
                raise HeaderUnavailableError(f"kafka.{key} is not supported for reading a batch's header")
        self._socket = socket.create_connection(leader, _TIMEOUT_S)
        try:
            self._socket.settimeout(_TIMEOUT_S)
            if protocol in _TLS:
                # wrap_socket takes the descriptor over, so from here on only the new object can close it.
                self._socket = _tls(settings).wrap_socket(self._socket, server_hostname=leader[0])
            self._calls = 0
            if protocol.startswith("sasl"):
                self._authenticate(settings)
        except BaseException:
            self._socket.close()
            raise

    def fetch(self, place: TopicPartition, offset: int) -> BatchOffsets:
        name = place.topic.encode()
        # Replica -1 (a client), wait, at least 1 byte, at most 1 byte, isolation 0 (uncommitted records too).
        # Every batch exceeds the limit of 1 byte, so the broker answers exactly one.
        body = struct.pack(">iiiib", -1, _WAIT_MS, 1, 1, 0)
        body += struct.pack(">ih", 1, len(name)) + name
        body += struct.pack(">iiqi", 1, place.partition, offset, 1)
        self._send(_FETCH, _FETCH_VERSION, body)
        self._take(">ii")  # size of the answer, number of the call
        _, topics = self._take(">ii")
        if topics != 1:
            raise HeaderUnavailableError("the broker does not know the topic")
        self._read(self._take(">h")[0])
        _, _, error, _, _, aborted = self._take(">iihqqi")
        if error:
            raise HeaderUnavailableError(f"the broker answers with error {error}")
        self._read(max(aborted, 0) * 16)
        (size,) = self._take(">i")
        if size < _BATCH.size:
            raise HeaderUnavailableError(f"the broker has no record batch at offset {offset}")
        first, _, _, magic, _, _, delta = _BATCH.unpack(self._read(_BATCH.size))
        if magic != _MAGIC or delta < 0:
            raise HeaderUnavailableError(f"the batch has format {magic}, not {_MAGIC}")
        return BatchOffsets(first, first + delta)

    def _authenticate(self, settings: Mapping[str, Any]) -> None:
        mechanism = str(settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")))
        user, password = str(settings.get("sasl.username", "")), str(settings.get("sasl.password", ""))
        if mechanism != "PLAIN" and mechanism not in ScramClient.HASHES:
            raise HeaderUnavailableError(
                f"the SASL mechanism {mechanism} is not supported for reading a batch's header"
            )
        name = mechanism.encode()
        self._send(_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
        self._refuse_error(self._answer())
        if mechanism == "PLAIN":
            self._exchange(f"\0{user}\0{password}".encode())
            return
        scram = ScramClient(mechanism, user, password, SystemIds().uuid())
        scram.check(self._exchange(scram.proof(self._exchange(scram.first()))))

    def _exchange(self, content: bytes) -> bytes:
        self._send(_AUTHENTICATE, 0, struct.pack(">i", len(content)) + content)
        answer = self._answer()
        self._refuse_error(answer)
        (length,) = struct.unpack_from(">h", answer, 2)
        at = 4 + max(length, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + size]

    def _refuse_error(self, answer: bytes) -> None:
        (error,) = struct.unpack_from(">h", answer)
        if error:
            raise HeaderUnavailableError(f"SASL: the broker answers with error {error}")

    def _answer(self) -> bytes:
        size, _ = self._take(">ii")
        return self._read(size - 4)

    def _send(self, api: int, version: int, body: bytes) -> None:
        self._calls += 1
        head = struct.pack(">hhih", api, version, self._calls, len(_CLIENT)) + _CLIENT
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _take(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._read(struct.calcsize(form)))

    def _read(self, size: int) -> bytes:
        if not 0 <= size <= _ANSWER_MAX:
            raise HeaderUnavailableError(f"the broker's answer has a part of {size} bytes")
        parts = bytearray()
        while len(parts) < size:
            received = self._socket.recv(size - len(parts))
            if not received:
                raise HeaderUnavailableError("the broker closed the connection")
            parts += received
        return bytes(parts)

    def __enter__(self) -> _Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def _tls(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """TLS as librdkafka does it: with the machine's authorities unless `ssl.ca.location` names others, and
    with the host name checked unless that is switched off.
    """
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if (certificate := settings.get("ssl.certificate.location")) is not None:
        context.load_cert_chain(
            certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password")
        )
    return context
