"""Closes connections of a gRPC server when there are too many, first those on which nobody calls.

gRPC accepts connections up to a limit and refuses later ones. With that rule alone, strangers could keep all
others out: they connect first, send nothing, and connect again when they are closed. So there are two bounds
(`Bounds`). Every `LOOK_EVERY_S` this module closes the connections above the lower bound. The upper bound is
gRPC's own limit, for connections that come between two looks.

Which connections are closed:

1. Those on which no call was ever accepted, the oldest first, until the lower bound is kept.
2. If the connections with calls alone are above the bound: of these, the ones whose last call is longest ago.

Two kinds are never closed: a connection on which a call runs, and one that the look before did not see. So a
new connection has at least `LOOK_EVERY_S` for its first call. A call is accepted when `AccessInterceptor`
lets it pass; the health calls that are open to everybody do not count.

gRPC does not show its connections to Python, but they are sockets of this process. A look finds them among
the open files by their local port and shuts them down. For gRPC that is as if the other side had closed them.
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
"""The folder with this process's open files by number, on Linux and on macOS."""
_LOG_EVERY_S: Final = 10.0
_log = logging.getLogger("tidemark.rpc")


@dataclass(frozen=True)
class Bounds:
    """`kept`: how many connections a look leaves open; `accepted`: how many gRPC has at any time."""

    kept: int
    accepted: int


def bounds() -> Bounds:
    """The bounds for this process. Connections may take at most a quarter of the files that it may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = KEPT_MAX if soft == resource.RLIM_INFINITY else min(KEPT_MAX, max(1, soft // 8))
    return Bounds(kept, 2 * kept)


class Connection(NamedTuple):
    """An open socket of a server: the number of its file, and the other side as `peer_of` names it."""

    number: int
    peer: str


def peer_of(host: str, port: int | str) -> str:
    """The name of the other side, the same for all forms of its address: `127.0.0.1 4711` for host 127.0.0.1
    and for ::ffff:127.0.0.1.
    """
    host = host.strip("[]").partition("%")[0]
    return f"{host.removeprefix('::ffff:')} {port}"


def superfluous(
    now: Mapping[int, Connection],
    before: Collection[int],
    used: Mapping[str, int],
    busy: Collection[str],
    kept: int,
) -> list[int]:
    """The identities of the connections to close, by the rules above.

    `now`: all connections by identity, in the order in which they were first seen. `before`: the identities
    that the look before saw. `used`: peer -> a number that is the greater the later its last call was.
    `busy`: peers with running calls. `kept`: the lower bound.
    """
    callers = sum(peer in used or peer in busy for _, peer in now.values())
    idle = [key for key, (_, peer) in now.items() if key in before and peer not in busy]
    silent = [key for key in idle if now[key].peer not in used]
    called = sorted((key for key in idle if now[key].peer in used), key=lambda key: used[now[key].peer])
    return silent[: max(0, len(now) - kept)] + called[: max(0, callers - kept)]


class CallsOfConnections(HandlerInterceptor):
    """Notes which peers call, for the `most` peers that called last. Thread-safe.

    It is inside `AccessInterceptor`, so it sees accepted calls only.
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
        """`used` and `busy`, as `superfluous` takes them."""
        with self._lock:
            return dict(self._used), set(self._running)

    @contextmanager
    def _noted(self, method: str, context: Any) -> Iterator[None]:
        if method in OPEN:
            yield
            return
        # gRPC's forms: ipv4:127.0.0.1:4711, ipv6:%5B::1%5D:4711
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
    """A thread that looks at the connections of the server at `port` and closes superfluous ones.

    `made_room` is called for each closed connection on which no call was ever accepted.
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
        """Ends the thread. Repeatable."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            try:
                self._look()
            except OSError as error:
                _log.warning("cannot look at the connections of port %d: %s", self._port, error)

    def _look(self) -> None:
        numbers = [int(name) for name in os.listdir(_OPEN_FILES)]
        if len(numbers) <= self._kept:
            self._seen = {}
            return
        connected = dict(_connections(numbers, self._port))
        # In the order in which they were first seen: those of the look before, then new ones.
        now = {key: connected[key] for key in (*(key for key in self._seen if key in connected), *connected)}
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
    """Those of the open files `numbers` that are connections to `port`: (identity, connection)."""
    for number in numbers:
        try:
            key = _identity(number)
            # Only borrowed: `detach` below gives the file back without closing it.
            borrowed = socket.socket(fileno=number)
        except OSError:
            continue  # closed meanwhile, or not a socket
        try:
            if borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.getsockname()[1] == port:
                yield key, Connection(number, peer_of(*borrowed.getpeername()[:2]))
        except OSError:
            continue  # it listens, or the other side has closed it
        finally:
            borrowed.detach()


def _shut_down(number: int, identity: int) -> bool:
    """Shuts a socket down. False if another file has the number by now, or the socket is closed already."""
    try:
        copy = os.dup(number)
    except OSError:
        return False
    # The copy keeps its file, even if gRPC closes the number now and another file gets it.
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
    """The inode of an open socket, which tells it from another socket that got its file number later."""
    return os.fstat(number).st_ino
