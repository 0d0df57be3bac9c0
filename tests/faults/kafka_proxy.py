"""A proxy between Kafka's clients and brokers that lets single requests and answers go wrong, by rule.

    proxy = KafkaProxy(kafka.bootstrap_servers)
    client = ConfluentKafkaClient({"bootstrap.servers": proxy.bootstrap_servers})
    held = proxy.on(Api.END_TXN, Fault.HOLD_AND_CUT, transactional_id="orders-assign-0")
    ...
    assert held.release() == [OK]

All traffic of a client goes through it, whatever brokers the cluster has or gets: addresses in answers are
rewritten, and each broker has a `Link` of its own, to be cut, black-holed or slowed down. Of a broker
behind it nothing needs to be known beforehand. Rules are matched in the order in which they were made; each
acts `times` times, and a request meets one rule at most.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.faults.kafka_addresses import rewrite_addresses
from tests.faults.kafka_fenced import hide_brokers
from tests.faults.kafka_wire import (
    Api,
    Request,
    correlation_of,
    error_codes,
    parse_request,
    read_frame,
)
from tests.faults.link import Address, Connection, Link, Way

OK: Final = 0
_NAMES: Final = {int(api): api.name for api in Api}
_SEEN_MAX: Final = 20_000
_LATE_TIMEOUT_S: Final = 60.0


class Fault(Enum):
    """What happens to one request."""

    HOLD = "held back until `release`; its client gets no answer"
    HOLD_AND_CUT = "held back until `release`; its client's connection ends"
    COPY = "passes, and a copy is held back until `release`"
    DOUBLE = "passes twice, the second time right behind the first; one answer"
    DROP = "lost; its client gets no answer"
    DROP_AND_CUT = "lost; its client's connection ends"
    LOSE_ANSWER = "done, and the answer is lost"
    LOSE_ANSWER_AND_CUT = "done, and the connection ends instead of the answer"
    DELAY = "arrives `seconds` late, and what comes behind it on its connection as well"
    DELAY_ANSWER = "its answer arrives `seconds` late, and what comes behind it as well"
    OVERTAKEN = "arrives behind the next request of its connection, or `seconds` late"


_HOLDS: Final = frozenset({Fault.HOLD, Fault.HOLD_AND_CUT, Fault.COPY})
_SWALLOWS: Final = frozenset({Fault.HOLD, Fault.HOLD_AND_CUT, Fault.DROP, Fault.DROP_AND_CUT})
_CUTS: Final = frozenset({Fault.HOLD_AND_CUT, Fault.DROP_AND_CUT})


@dataclass
class Rule:
    """An order for faults. `happened` is set at the first one.

    `release_before`: what is held arrives before the first later request for which it is true, and that one
    waits `pause_s` more (for markers to be written). What the broker answered is in `released`.
    """

    api: Api
    fault: Fault
    transactional_id: str | None = None
    topic: str | None = None
    commits: bool | None = None
    skip: int = 0
    times: int = 1
    seconds: float = 1.0
    release_before: Callable[[Request], bool] | None = None
    pause_s: float = 0.0
    happened: threading.Event = field(default_factory=threading.Event)
    released: list[list[int]] = field(default_factory=list)
    _held: deque[tuple[Address, Request]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, request: Request) -> bool:
        """Whether it acts on this request. Call it once per request, under the proxy's lock."""
        wanted = (
            self.times > 0
            and request.api == self.api
            and self.transactional_id in (None, request.transactional_id)
            and self.topic in (None, request.topic)
            and self.commits in (None, request.commits)
        )
        if not wanted:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True

    def hold(self, upstream: Address, request: Request) -> None:
        self._held.append((upstream, request))

    @property
    def holds(self) -> int:
        """How many requests it keeps."""
        return len(self._held)

    def release(self, to: Address | None = None) -> list[int]:
        """Lets the oldest held request reach its broker (or another), on a connection of its own.

        Returns the broker's error codes, one per partition where the answer has them so; none when nothing is
        held: several connections may find the same request due.
        """
        with self._lock:
            if not self._held:
                return []
            upstream, request = self._held.popleft()
        with socket.create_connection(to or upstream, _LATE_TIMEOUT_S) as connection:
            connection.sendall(request.frame)
            answer = read_frame(connection)
        assert answer is not None, f"the broker closed the connection on {request}"
        codes = error_codes(request, answer)
        self.released.append(codes)
        return codes

    def is_due(self, request: Request) -> bool:
        """Whether what it holds is to arrive before this request."""
        return self.release_before is not None and bool(self._held) and self.release_before(request)

    def wait(self, timeout_s: float = 180.0) -> None:
        """Fails when it has not happened in time."""
        assert self.happened.wait(timeout_s), f"no {self.api.name} met {self.fault.name} in {timeout_s} s"


class KafkaProxy:
    """In front of the brokers of one cluster. Several proxies of one cluster make several networks."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._links: dict[Address, Link] = {}
        self._rules: list[Rule] = []
        self._all_rules: list[Rule] = []
        self._lock = threading.RLock()
        self.is_fenced = False
        """While it is set, Metadata has neither brokers nor leaders (`kafka_fenced`)."""
        self.seen: deque[Request] = deque(maxlen=_SEEN_MAX)
        """The requests that came, without their bytes."""
        addresses = [Address.parse(each) for each in bootstrap_servers.split(",")]
        self.bootstrap_servers = ",".join(str(self._proxied(address)) for address in addresses)

    def link(self, upstream: str) -> Link:
        """The link to the broker at host:port."""
        with self._lock:
            address = Address.parse(upstream)
            self._proxied(address)
            return self._links[address]

    @property
    def links(self) -> list[Link]:
        with self._lock:
            return list(self._links.values())

    # ------------------------------------------------------------ single requests

    def on(
        self,
        api: Api,
        fault: Fault,
        *,
        transactional_id: str | None = None,
        topic: str | None = None,
        commits: bool | None = None,
        skip: int = 0,
        times: int = 1,
        seconds: float = 1.0,
        release_before: Callable[[Request], bool] | None = None,
        pause_s: float = 0.0,
    ) -> Rule:
        """A new rule: after `skip` matching requests the next `times` meet the fault."""
        rule = Rule(
            api, fault, transactional_id, topic, commits, skip, times, seconds, release_before, pause_s
        )
        with self._lock:
            self._rules.append(rule)
            self._all_rules.append(rule)
        return rule

    def forget_rules(self) -> None:
        """From now on every request passes; what is held stays held."""
        with self._lock:
            self._rules.clear()

    def rule_for(self, request: Request) -> Rule | None:
        """The rule that acts on this request, noted. Late requests that are due before it arrive first."""
        with self._lock:
            due = [rule for rule in self._all_rules if rule.is_due(request)]
        for rule in due:
            rule.release()
            threading.Event().wait(rule.pause_s)
        with self._lock:
            self.seen.append(Request(*list(vars(request).values())[:-1]))
            taken = next((rule for rule in self._rules if rule.takes(request)), None)
        if taken is not None:
            taken.happened.set()
        return taken

    def versions(self) -> dict[str, set[int]]:
        """Which version of each known API its clients spoke."""
        with self._lock:
            found: dict[str, set[int]] = {}
            for request in self.seen:
                if request.api in _NAMES:
                    found.setdefault(_NAMES[request.api], set()).add(request.version)
        return found

    # ------------------------------------------------------------ whole links

    def cut(self) -> None:
        """Ends every connection to every broker."""
        for link in self.links:
            link.cut()

    def refuse(self) -> None:
        """No connection to any broker, until `heal`."""
        for link in self.links:
            link.refuse()

    def black_hole(self, *ways: Way) -> None:
        """Nothing passes on these ways (both when none is named), until `heal`."""
        for link in self.links:
            link.black_hole(*ways)

    def heal(self) -> None:
        for link in self.links:
            link.heal()

    def close(self) -> None:
        """Ends every link. Raises what went wrong on their threads: what clients saw then was no fault."""
        failures: list[BaseException] = []
        for link in self.links:
            try:
                link.close()
            except (BaseExceptionGroup, AssertionError) as error:
                failures.append(error)
        if failures:
            raise BaseExceptionGroup("the proxy did not work", failures)

    # ------------------------------------------------------------ inside

    def _proxied(self, upstream: Address) -> Address:
        """Where clients find this broker; answers may name one that was not known before."""
        with self._lock:
            link = self._links.get(upstream)
            if link is None:
                link = Link(upstream, lambda connection: _KafkaConversation(self, upstream, connection))
                self._links[upstream] = link
            return link.address

    def rewrite(self, request: Request, answer: bytes) -> bytes:
        rewritten = rewrite_addresses(request, answer, self._proxied)
        return hide_brokers(request, rewritten) if self.is_fenced else rewritten


class _KafkaConversation:
    """One client's connection to one broker."""

    def __init__(self, proxy: KafkaProxy, upstream: Address, connection: Connection) -> None:
        self._proxy = proxy
        self._upstream = upstream
        self._connection = connection
        self._pending: dict[int, tuple[Request, Rule | None]] = {}
        self._extra_answers: deque[int] = deque()
        self._overtaken: bytes = b""
        self._lock = threading.Lock()

    def read(self, source: socket.socket) -> bytes | None:
        return read_frame(source)

    def pass_on(self, way: Way, unit: bytes) -> bytes | None:
        return self._request(unit) if way is Way.TO_SERVER else self._answer(unit)

    def _request(self, frame: bytes) -> bytes | None:
        request = parse_request(frame)
        rule = self._proxy.rule_for(request)
        fault = None if rule is None else rule.fault
        if rule is not None and fault in _HOLDS:
            rule.hold(self._upstream, request)
        if fault in _CUTS:
            self._connection.cut()
        if fault in _SWALLOWS:
            return None
        with self._lock:
            self._pending[request.correlation_id] = (request, rule)
            if fault is Fault.DOUBLE:
                self._extra_answers.append(request.correlation_id)
                frame += frame
            overtaken, self._overtaken = self._overtaken, b""
        if rule is not None and fault is Fault.OVERTAKEN:
            self._let_pass(frame, rule.seconds)
            return overtaken or None
        if rule is not None and fault is Fault.DELAY:
            threading.Event().wait(rule.seconds)
        return frame + overtaken

    def _let_pass(self, frame: bytes, seconds: float) -> None:
        """Keeps the frame for the next request to pass, or sends it when none comes in time."""

        def send_late() -> None:
            with self._lock:
                late, self._overtaken = self._overtaken, b""
            if late:
                try:
                    self._connection.send(Way.TO_SERVER, late)
                except OSError:
                    return

        with self._lock:
            self._overtaken = frame
        timer = threading.Timer(seconds, send_late)
        timer.daemon = True
        timer.start()

    def _answer(self, frame: bytes) -> bytes | None:
        correlation = correlation_of(frame)
        with self._lock:
            if correlation not in self._pending and correlation in self._extra_answers:
                self._extra_answers.remove(correlation)
                return None
            request, rule = self._pending.pop(correlation)
        fault = None if rule is None else rule.fault
        if fault is Fault.LOSE_ANSWER_AND_CUT:
            self._connection.cut()
        if fault in (Fault.LOSE_ANSWER, Fault.LOSE_ANSWER_AND_CUT):
            return None
        if rule is not None and fault is Fault.DELAY_ANSWER:
            threading.Event().wait(rule.seconds)
        return self._proxy.rewrite(request, frame)
