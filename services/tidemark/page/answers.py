"""HTTP answers of the page's server: the files of the page, JSON documents, and the headers of both."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tidemark.stream_runtime.http_messages import Answer, Request
from tidemark.stream_runtime.http_server import Route
from tidemark.stream_runtime.platform.version import installed_version

FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final[Mapping[str, str]] = {
    # The page may load, run and call only what this server serves. No other page may embed it in a frame, and
    # its forms are sent nowhere else.
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def json_answer(document: Any, status: int = 200) -> Answer:
    """The document as JSON. A value in it that is not of a plain JSON type raises: that is a defect."""
    body = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Answer(body.encode("utf-8", "replace"), "application/json; charset=utf-8", status, HEADERS)


def error_answer(status: int, text: str) -> Answer:
    """The document `{"error": text}`; the text says what to do."""
    return json_answer({"error": text}, status)


def page_files() -> dict[str, Route]:
    """A route for each file of the page, and `/` for the page itself. The files are read once, here, so a
    request cannot name any other file.
    """
    routes = {f"/{file.name}": _always(file) for file in sorted(FOLDER.iterdir()) if file.suffix in _TYPES}
    return {**routes, "/": routes["/index.html"]}


def _always(file: Path) -> Route:
    content = file.read_bytes()
    if file.suffix == ".html":
        content = content.replace(b"{version}", installed_version().encode())
    answer = Answer(content, _TYPES[file.suffix], 200, HEADERS)
    return lambda _: answer


def own_pages_only(route: Route, hosts: frozenset[str] | None) -> Route:
    """Refuses requests that another web page makes a browser send.

    - The host of a request has to be one of `hosts` (None: any), or an IP address. Otherwise a foreign name
      that resolves to this address (DNS rebinding) would count as the page's own origin, and scripts of that
      page could read the answers.
    - Documents below `/api/` are refused to pages of other sites, by the header `Sec-Fetch-Site`.
    """

    def guarded(request: Request) -> Answer:
        if hosts is not None and not _is_ours(request.headers.get("host", ""), hosts):
            return error_answer(421, "this page does not answer under that name (services.web)")
        site = request.headers.get("sec-fetch-site")
        if request.path.startswith("/api/") and site in ("cross-site", "same-site"):
            return error_answer(403, "only the page itself may ask for this")
        return route(request)

    return guarded


def _is_ours(host: str, names: frozenset[str]) -> bool:
    try:
        named = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if named in names:
        return True
    try:
        ipaddress.ip_address(named)
    except ValueError:
        return False
    return True
