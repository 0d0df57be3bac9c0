"""Requests and answers of the HTTP server: what a route gets and gives, and their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BytesIO
from typing import Final
from urllib.parse import parse_qs, urlsplit

REQUEST_TARGET_CHARS_MAX: Final = 8_192
QUERY_FIELDS_MAX: Final = 32
_TEXT: Final = "text/plain; charset=utf-8"
_ALWAYS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Connection": "close",
}


@dataclass(frozen=True)
class Request:
    """`query` holds the first value of each field; `headers` have lower case names. `certificate_names`: who
    asks, as a client certificate that TLS verified says; `peer`: where from, for logs.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    certificate_names: tuple[str, ...] = ()
    peer: str = ""


@dataclass(frozen=True)
class Answer:
    """What goes back; `headers` are laid over the server's own."""

    body: bytes = b""
    content_type: str = _TEXT
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def text_answer(status: int, text: str) -> Answer:
    """One line of plain text."""
    return Answer(f"{text}\n".encode(), status=status)


class BadRequestError(Exception):
    """A request that reaches no route; the argument is the answer."""


def parsed_request(head: bytes, certificate_names: tuple[str, ...], peer: str) -> tuple[str, Request]:
    """Method and request of a head. Raises BadRequestError."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError(text_answer(400, "this is no request of HTTP/1.1"))
    method, address, _ = words
    if method not in ("GET", "HEAD"):
        raise BadRequestError(text_answer(501, "only GET and HEAD are answered"))
    if len(address) > REQUEST_TARGET_CHARS_MAX:
        raise BadRequestError(text_answer(414, f"at most {REQUEST_TARGET_CHARS_MAX} characters, please"))
    try:
        target = urlsplit(address)
        fields = parse_qs(target.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise BadRequestError(text_answer(400, "this address cannot be read")) from None
    try:
        headers = {name.lower(): value for name, value in parse_headers(BytesIO(rest)).items()}
    except HTTPException:
        raise BadRequestError(text_answer(431, "this request has too many headers")) from None
    query = {name: values[0] for name, values in fields.items()}
    return method, Request(target.path, query, headers, certificate_names, peer)


def encoded_head(answer: Answer) -> bytes:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = ""
    fields = {
        "Server": "tidemark",
        "Date": formatdate(usegmt=True),
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        **_ALWAYS,
        **answer.headers,
    }
    lines = [
        f"HTTP/1.1 {int(answer.status)} {phrase}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
