"""Requests and answers of the HTTP server: the values that routes take and return, and their bytes."""

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
    """A request without a body.

    `query` holds the first value of each field; `headers` have lower case names. `certificate_names` are the
    names in the client's certificate, which TLS has verified; empty without one. `peer` is the client's
    address and port, for logs.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    certificate_names: tuple[str, ...] = ()
    peer: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer to a request. `headers` replace the server's own of the same name."""

    body: bytes = b""
    content_type: str = _TEXT
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def text_answer(status: int, text: str) -> Answer:
    """An answer whose body is one line of plain text."""
    return Answer(f"{text}\n".encode(), status=status)


class BadHttpRequestError(Exception):
    """The request cannot be handed to a route. The exception's argument is the `Answer` for the client."""


def parsed_request(head: bytes, certificate_names: tuple[str, ...], peer: str) -> tuple[str, Request]:
    """Parses request line and headers (`head` ends with an empty line) into the method (GET or HEAD) and the
    request. Raises BadHttpRequestError.
    """
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadHttpRequestError(text_answer(400, "this is not an HTTP/1.1 request"))
    method, address, _ = words
    if method not in ("GET", "HEAD"):
        raise BadHttpRequestError(text_answer(501, "only GET and HEAD are answered"))
    if len(address) > REQUEST_TARGET_CHARS_MAX:
        too_long = f"the address is longer than {REQUEST_TARGET_CHARS_MAX} characters"
        raise BadHttpRequestError(text_answer(414, too_long))
    try:
        target = urlsplit(address)
        fields = parse_qs(target.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise BadHttpRequestError(text_answer(400, "this address cannot be read")) from None
    try:
        headers = {name.lower(): value for name, value in parse_headers(BytesIO(rest)).items()}
    except HTTPException:
        raise BadHttpRequestError(text_answer(431, "this request has too many headers")) from None
    query = {name: values[0] for name, values in fields.items()}
    return method, Request(target.path, query, headers, certificate_names, peer)


def encoded_head(answer: Answer) -> bytes:
    """Status line and headers of the answer, with the empty line that ends them."""
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
