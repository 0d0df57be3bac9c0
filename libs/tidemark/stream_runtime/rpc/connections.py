"""Which connections a server keeps when more come than it has room for: those on which callers call.

gRPC takes connections up to a limit and turns away whoever comes after. By that rule alone strangers who
connect first, say nothing, and connect again whenever they are closed, keep every newcomer out. So there are
two bounds (`Bounds`). A look once in `LOOK_EVERY_S` closes what is above the lower one; the upper one is
gRPC's own, and holds for what comes between two looks.

Closed are the connections on which no call was ever let in, first those that have waited longest. Of the
others only what is above the bound by itself, first those whose last call is longest ago. Never closed are a
connection on which a call runs, and one that the look before did not see: who has got a connection has at
least `LOOK_EVERY_S` for its first call. A call counts when `AccessInterceptor` let it in; the health calls
that are open to everybody do not count.

gRPC shows Python no connections. But they are sockets of this process: the look finds them among its open
files by the port that they came to, and shuts them down, which gRPC takes for the other side's hanging up.
"""

from __future__ import annotations

import itertools
import logging
import os
import resource
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.rpc.interceptors import Handler, HandlerInterceptor
from tidemark.stream_runtime.security.roles import OPEN

LOOK_EVERY_S: Final = 1.0
KEPT_MAX: Final = 1_024
_OPEN_FILES: Final = "/dev/fd"
"""This process's open files by number, on Linux and on macOS."""
_LOG_EVERY_S: Final = 10.0
_log = logging.getLogger("tidemark.rpc")


@dataclass(frozen=True)
class Bounds:
    """`kept`: connections that a look leaves open; `accepted`: those that gRPC has at any time."""

    kept: int
    accepted: int


def bounds() -> Bounds:
    """By how many files this process may have open, of which connections take a quarter at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = KEPT_MAX if soft == resource.RLIM_INFINITY else min(KEPT_MAX, max(1, soft // 8))
    return Bounds(kept, 2 * kept)


class Connection(NamedTuple):
    """An open socket of a server; `number` is the one of its file, `peer` as `peer_of` names it."""

    number: int
    peer: str


def peer_of(host: str, port: int | str) -> str:
    """One name of the other side, however it is written."""
    host = host.strip("[]").partition("%")[0]
    return f"{host.removeprefix('::ffff:')} {port}"


def superfluous(
    now: Mapping[int, Connection],
    before: Collection[int],
    used: Mapping[str, int],
    busy: Collection[str],
    kept: int,
) -> list[int]:
    """Which connections to close: without calls as many as bring all of them down to `kept`, and of those
    with calls as many as bring these down to it.

    `now`: by identity, those that were seen first before the others. `before`: identities that the look
    before saw. `used`: by peer, when its last call was, as a number that grows. `busy`: peers whose calls
    run.
    """
    callers = sum(peer in used or peer in busy for _, peer in now.values())
    idle = [key for key, (_, peer) in now.items() if key in before and peer not in busy]
    silent = [key for key in idle if now[key].peer not in used]
    called = sorted((key for key in idle if now[key].peer in used), key=lambda key: used[now[key].peer])
    return silent[: max(0, len(now) - kept)] + called[: max(0, callers - kept)]


class CallsOfConnections(HandlerInterceptor):
    """Who calls; stands inside `AccessInterceptor`, which lets calls in. Thread-safe. Knows the `most` peers
    that called last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._count = itertools.count()
        self._running: Counter[str] = Counter()
        self._used: OrderedDict[str, int] = OrderedDict()

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        with self._noted(method, context):
            return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        with self._noted(method, context):
            yield from handler(request, context)

    def known(self) -> tuple[dict[str, int], set[str]]:
        """By peer when it called last, as a number that grows; the peers whose calls run."""
        with self._lock:
            return dict(self._used), set(self._running)

    @contextmanager
    def _noted(self, method: str, context: Any) -> Iterator[None]:
        if method in OPEN:
            yield
            return
        # ipv4:127.0.0.1:4711, ipv6:%5B::1%5D:4711
        host, _, port = unquote(context.peer()).partition(":")[2].rpartition(":")
        peer = peer_of(host, port)
        with self._lock:
            self._running[peer] += 1
            self._use(peer)
        try:
            yield
        finally:
            with self._lock:
                self._running[peer] -= 1
                if not self._running[peer]:
                    del self._running[peer]
                self._use(peer)

    def _use(self, peer: str) -> None:
        self._used[peer] = next(self._count)
        self._used.move_to_end(peer)
        if len(self._used) > self._most:
            self._used.popitem(last=False)


class RoomForNewcomers:
    """A thread that looks at the connections of the server at `port`, and closes what is superfluous.

    `made_room` is told of each connection closed on which no call was let in.
    """

    def __init__(
        self, port: int, calls: CallsOfConnections, kept: int, clock: Clock, made_room: Callable[[], None]
    ) -> None:
        self._port = port
        self._calls = calls
        self._kept = kept
        self._clock = clock
        self._made_room = made_room
        # By identity, in the order in which they were seen first.
        self._seen: dict[int, Connection] = {}
        self._closed = 0
        self._logged_s = clock.monotonic_s() - _LOG_EVERY_S
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rpc-connections", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes no connection any more. Repeatable."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            try:
                self._look()
            except OSError as error:
                _log.warning("cannot look at the connections of port %d: %s", self._port, error)

    def _look(self) -> None:
        numbers = [int(each) for each in os.listdir(_OPEN_FILES)]
        if len(numbers) <= self._kept:
            self._seen = {}
            return
        found = dict(_connections(numbers, self._port))
        now = {key: found[key] for key in (*(key for key in self._seen if key in found), *found)}
        used, busy = self._calls.known()
        for key in superfluous(now, self._seen, used, busy, self._kept):
            if _shut_down(now[key].number, key):
                self._closed += 1
                if now[key].peer not in used:
                    self._made_room()
        self._seen = now
        self._log_closed()

    def _log_closed(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._closed and now_s - self._logged_s >= _LOG_EVERY_S:
            _log.warning(
                "more than %d connections to port %d: closed %d, those without calls first",
                self._kept,
                self._port,
                self._closed,
            )
            self._closed, self._logged_s = 0, now_s


def _connections(numbers: list[int], port: int) -> Iterator[tuple[int, Connection]]:
    """Of the files `numbers` those that are connections to `port`, by identity."""
    for number in numbers:
        try:
            key = _identity(number)
            # Borrowed: it stays the file of whoever opened it.
            borrowed = socket.socket(fileno=number)
        except OSError:
            continue  # closed meanwhile, or no socket
        try:
            if borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.getsockname()[1] == port:
                yield key, Connection(number, peer_of(*borrowed.getpeername()[:2]))
        except OSError:
            continue  # it listens, or has gone
        finally:
            borrowed.detach()


def _shut_down(number: int, identity: int) -> bool:
    """Whether the socket was still the one behind that number, and was open."""
    try:
        copy = os.dup(number)
    except OSError:
        return False
    # Behind the copy nothing changes any more, whoever closes and opens files now.
    try:
        if _identity(copy) != identity:
            return False
        shared = socket.socket(fileno=copy)
        try:
            shared.shutdown(socket.SHUT_RDWR)
        finally:
            shared.detach()
    except OSError:
        return False
    finally:
        os.close(copy)
    return True


def _identity(number: int) -> int:
    """Of the open socket, whatever number it has."""
    return os.fstat(number).st_ino
