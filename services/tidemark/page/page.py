"""Serves the page and its documents at `services.web`; everything is read-only.

The coordinator's loop does no work for the page. Documents are made on the server's threads from snapshots
that the loop keeps anyway, and are cached, so more browsers cause no more work. If the port is taken the page
tries again until it is free: the table does not wait for its page, and the port's owner may be a predecessor
that is ending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import Any, Final, Generic, TypeVar

from tidemark.config.model import Address
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.partition_paths import PATH_BYTES_MAX
from tidemark.page.answers import error_answer, json_answer, own_pages_only, page_files
from tidemark.page.dead_letters import dead_letters_document
from tidemark.page.group_sizes import group_sizes
from tidemark.page.key_story import KeyStories
from tidemark.page.overview import EPOCHS_SHOWN, Facts, overview
from tidemark.page.rates import Rates
from tidemark.page.sources import Pictures
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError, StreamRuntimeError
from tidemark.stream_runtime.http_messages import Answer, Request
from tidemark.stream_runtime.http_server import HttpServer, Route
from tidemark.stream_runtime.security.listening import ListenError
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.status import Status

_OVERVIEW_AGE_S: Final = 1.0
_SLOW_AGE_S: Final = 5.0
_LISTEN_EVERY_S: Final = 5.0
_SOME_GROUPS: Final = 12
_STATUS_OF_KIND: Final = {
    ErrorKind.RETRYABLE: 503,
    ErrorKind.FENCED: 503,
    ErrorKind.CONFLICT: 409,
    ErrorKind.INVALID: 400,
    ErrorKind.CORRUPT: 500,
}
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class PageSources:
    """Where the page's data comes from. ``epochs`` returns up to so many of the newest epochs, newest
    first.
    """

    facts: Facts
    status: Callable[[], Status]
    epochs: Callable[[int], Sequence[EpochRecord]]
    pictures: Pictures
    stories: KeyStories
    clock: Clock


Serve = Callable[[Mapping[str, Route]], HttpServer]


class WebPage:
    """The page's server. Call `start` once, and `close` at the end."""

    def __init__(self, sources: PageSources, serve: Serve, hosts: frozenset[str] | None) -> None:
        """``serve`` starts a server with the routes, or raises ListenError. ``hosts``: the host names that
        requests may have (`own_pages_only`); None: any.
        """
        self._sources = sources
        self._serve = serve
        self._hosts = hosts
        clock = sources.clock
        self._rates = Rates(sources.pictures.passed, clock)
        self._overview = Cached(self._make_overview, _OVERVIEW_AGE_S, clock)
        self._sizes = Cached(self._make_sizes, _SLOW_AGE_S, clock)
        self._dead_letters = Cached(self._make_dead_letters, _SLOW_AGE_S, clock)
        self._stopped = threading.Event()
        self._server: HttpServer | None = None
        self._listener = threading.Thread(target=self._listen_when_free, name="web-listen", daemon=True)

    def start(self) -> None:
        """Begins to serve; if the port is taken, as soon as it is free."""
        self._rates.start()
        if not self._try_to_listen(logging.WARNING):
            self._listener.start()

    @property
    def address(self) -> Address | None:
        """The address of the page; None while the port is taken."""
        return self._server.address if self._server is not None else None

    def is_served(self) -> bool:
        """Whether the page has its port and is not closed."""
        return self._server is not None

    def close(self) -> None:
        """Stops serving. Repeatable."""
        self._stopped.set()
        if self._listener.is_alive():
            self._listener.join(_LISTEN_EVERY_S)
        if self._server is not None:
            self._server.close()
            self._server = None
        self._rates.stop()
        self._sources.stories.close()

    def routes(self) -> dict[str, Route]:
        """The routes by path."""
        routes: dict[str, Route] = {
            **page_files(),
            "/api/overview": partial(self._document, self._overview.get),
            "/api/file-groups": partial(self._document, self._sizes.get),
            "/api/dead-letters": partial(self._document, self._dead_letters.get),
            "/api/key": self._story,
            "/api/some-key": partial(self._document, self._some_key),
        }
        return {path: own_pages_only(route, self._hosts) for path, route in routes.items()}

    def _try_to_listen(self, level: int) -> bool:
        try:
            self._server = self._serve(self.routes())
        except ListenError as error:
            _log.log(level, "no page yet, trying again: %s (services.web)", error)
            return False
        _log.info("the page is at %s", self._server.url)
        return True

    def _listen_when_free(self) -> None:
        while not self._stopped.wait(_LISTEN_EVERY_S):
            if self._try_to_listen(logging.DEBUG):
                return

    def _make_overview(self) -> dict[str, Any]:
        sources = self._sources
        return overview(
            sources.facts,
            sources.status(),
            sources.epochs(EPOCHS_SHOWN),
            self._rates.document(),
            sources.clock.now_ms(),
        )

    def _make_sizes(self) -> dict[str, Any]:
        return group_sizes(self._sources.pictures.groups(), self._sources.facts.target_bytes)

    def _make_dead_letters(self) -> dict[str, Any]:
        return dead_letters_document(self._sources.pictures.dead_letters())

    def _document(self, make: Callable[[], dict[str, Any]], _: Request) -> Answer:
        return _answered(make)

    def _story(self, request: Request) -> Answer:
        key = request.query.get("key", "")
        if not key:
            return error_answer(400, "name a key: /api/key?key=…")
        partition = request.query.get("partition")
        stories = self._sources.stories
        if len(key.encode("utf-8", "replace")) > stories.key_bytes_max:
            return error_answer(400, f"keys have at most {stories.key_bytes_max} bytes (limits.key_bytes)")
        if len((partition or "").encode("utf-8", "replace")) > PATH_BYTES_MAX:
            return error_answer(400, f"partition paths have at most {PATH_BYTES_MAX} bytes")
        return _answered(lambda: stories.story(key, partition))

    def _some_key(self) -> dict[str, Any]:
        """A key of one of the largest file groups, and its partition. The group changes every second, so that
        a user sees several.
        """
        sources = self._sources
        groups = nlargest(_SOME_GROUPS, sources.pictures.groups(), key=lambda group: group[2])
        if not groups:
            return {"key": None}
        partition_path, file_id, _ = groups[sources.clock.now_ms() // 1_000 % len(groups)]
        return {"key": sources.stories.some_key(partition_path, file_id), "partition": partition_path}


def _answered(make: Callable[[], dict[str, Any]]) -> Answer:
    """The document, or an error with the reason why there is none, with a status for its kind."""
    try:
        return json_answer(make())
    except DeadlineExceededError as error:
        return error_answer(504, str(error))
    except StreamRuntimeError as error:
        return error_answer(_STATUS_OF_KIND[error.kind], str(error))
    except (HudiFormatError, OSError) as error:
        return error_answer(503, str(error))
    except (OverflowError, ValueError) as error:
        # A date column can hold the year 10000, but Python's dates end with 9999.
        return error_answer(400, f"the key's row holds a value that cannot be shown here: {error}")


T = TypeVar("T")


class Cached(Generic[T]):
    """The answer of `make`, kept for `age_max_s` seconds. Thread-safe. While one thread makes a new answer,
    others get the former one; if there is none they wait.

    An error of `make` is raised in the thread that called it; the next call tries again.
    """

    def __init__(self, make: Callable[[], T], age_max_s: float, clock: Clock) -> None:
        self._make = make
        self._age_max_s = age_max_s
        self._clock = clock
        self._making = threading.Lock()
        self._made: tuple[float, T] | None = None

    def get(self) -> T:
        """The answer. Its age is at most `age_max_s` plus the time that `make` takes."""
        made = self._made
        if made is not None and not self._is_old(made[0]):
            return made[1]
        if not self._making.acquire(blocking=made is None):
            assert made is not None
            return made[1]
        try:
            made = self._made
            if made is None or self._is_old(made[0]):
                made = self._made = (self._clock.monotonic_s(), self._make())
            return made[1]
        finally:
            self._making.release()

    def _is_old(self, at_s: float) -> bool:
        return self._clock.monotonic_s() - at_s >= self._age_max_s
