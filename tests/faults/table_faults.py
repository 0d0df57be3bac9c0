"""Faults between a table's services and Kafka: each once, or at random by seed.

A late request arrives in front of a later request of the same producer, at a place that the dice choose, or
at the end of its round.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from tests.faults.kafka_proxy import Fault, KafkaProxy, Rule
from tests.faults.kafka_wire import Api, Request
from tests.faults.link import Way
from tidemark.ledger_client.topics import TopicNames

SERVICES: Final = ("assign-0", "shuffle-0", "coordinator")
_LATE_S: Final = 1.2
_MARKERS_S: Final = 0.3
_LATE_REQUESTS_MAX: Final = 8

ONE_REQUEST: Final[tuple[tuple[Api, Fault], ...]] = (
    *(
        (Api.END_TXN, fault)
        for fault in Fault
        # A commit that gets no answer for longer than its transaction may last is a link's fault.
        if fault is not Fault.OVERTAKEN
    ),
    *((Api.PRODUCE, fault) for fault in Fault),
    (Api.ADD_PARTITIONS_TO_TXN, Fault.DROP_AND_CUT),
    (Api.ADD_PARTITIONS_TO_TXN, Fault.LOSE_ANSWER_AND_CUT),
    (Api.ADD_PARTITIONS_TO_TXN, Fault.HOLD_AND_CUT),
    (Api.ADD_PARTITIONS_TO_TXN, Fault.COPY),
    (Api.INIT_PRODUCER_ID, Fault.DROP_AND_CUT),
    (Api.INIT_PRODUCER_ID, Fault.LOSE_ANSWER_AND_CUT),
    (Api.INIT_PRODUCER_ID, Fault.COPY),
)
READS: Final[tuple[tuple[Api, Fault], ...]] = (
    (Api.FETCH, Fault.DROP_AND_CUT),
    (Api.FETCH, Fault.LOSE_ANSWER),
    (Api.FETCH, Fault.DELAY_ANSWER),
    (Api.LIST_OFFSETS, Fault.LOSE_ANSWER_AND_CUT),
    (Api.METADATA, Fault.LOSE_ANSWER),
    (Api.METADATA, Fault.DELAY_ANSWER),
    (Api.FIND_COORDINATOR, Fault.LOSE_ANSWER_AND_CUT),
)


class FaultSchedule:
    """Orders faults for one table's services."""

    def __init__(self, proxy: KafkaProxy, names: TopicNames, seed: int) -> None:
        self._proxy = proxy
        self._names = names
        self._random = Random(seed)
        self.rules: list[Rule] = []
        self._names_of_rules: list[str] = []
        self._links: list[tuple[str, threading.Timer]] = []

    def order(self, api: Api, fault: Fault, service: str) -> Rule:
        """The fault meets the service's next request of this kind, or one of the next few."""
        rule = self._proxy.on(
            api,
            fault,
            transactional_id=f"{self._names.table}-{service}",
            skip=self._random.randrange(3),
            seconds=_LATE_S,
            release_before=self._few_requests_later(service),
        )
        self._note(rule, f"{service} {api.name} {fault.name}")
        return rule

    def order_read(self, api: Api, fault: Fault) -> Rule:
        rule = self._proxy.on(api, fault, skip=self._random.randrange(5), seconds=_LATE_S)
        self._note(rule, f"{api.name} {fault.name}")
        return rule

    def tear(self, service: str, ledger: str) -> Rule:
        """A copy of a commit arrives in the service's next transaction, between its batches and its entry."""
        name = f"{self._names.table}-{service}"
        rule = self._proxy.on(
            Api.END_TXN,
            Fault.COPY,
            transactional_id=name,
            commits=True,
            release_before=entry_behind_batches(name, ledger),
            pause_s=_MARKERS_S,
        )
        self._note(rule, f"{service} torn")
        return rule

    def any(self) -> None:
        """One random fault."""
        dice = self._random.random()
        if dice < 0.1:
            self.tear(self._random.choice(SERVICES[:2]), self._names.ledger)
        elif dice < 0.65:
            self.order(*self._random.choice(ONE_REQUEST), self._random.choice(SERVICES))
        elif dice < 0.8:
            self.order_read(*self._random.choice(READS))
        else:
            self.any_link()

    def any_link(self) -> None:
        """A whole link misbehaves for a while; returns at once."""
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("cut", self._proxy.cut),
            ("refused", self._proxy.refuse),
            ("black hole to the broker", lambda: self._proxy.black_hole(Way.TO_SERVER)),
            ("black hole to the clients", lambda: self._proxy.black_hole(Way.TO_CLIENT)),
            ("black hole", self._proxy.black_hole),
        ]
        name, act = self._random.choice(kinds)
        seconds = self._random.choice([0.2, 1.2, 3.0])
        act()
        timer = threading.Timer(seconds, self._proxy.heal)
        timer.daemon = True
        timer.start()
        self._links.append((f"{name} for {seconds} s", timer))

    def happened(self) -> list[str]:
        """The faults of this round that met a request or a link, once the links are whole again."""
        for _, timer in self._links:
            timer.join()
        named = zip(self.rules, self._names_of_rules, strict=True)
        met = [name for rule, name in named if rule.happened.is_set()]
        return met + [name for name, _ in self._links]

    def end_round(self) -> None:
        """What did not happen is forgotten; what is still held arrives now."""
        self._proxy.forget_rules()
        self._proxy.heal()
        for rule in self.rules:
            while rule.holds:
                rule.release()
        self.rules, self._names_of_rules, self._links = [], [], []

    def _note(self, rule: Rule, name: str) -> None:
        self.rules.append(rule)
        self._names_of_rules.append(name)

    def _few_requests_later(self, service: str) -> Callable[[Request], bool]:
        left: Iterator[int] = itertools.count(-self._random.randrange(_LATE_REQUESTS_MAX))
        name = f"{self._names.table}-{service}"
        return lambda request: request.transactional_id == name and next(left) >= 0


def entry_behind_batches(transactional_id: str, ledger: str) -> Callable[[Request], bool]:
    """True for the Produce that brings the entry: the first to the ledger after one to another topic."""
    seen_batch = False

    def is_entry(request: Request) -> bool:
        nonlocal seen_batch
        if request.transactional_id != transactional_id or request.api != Api.PRODUCE:
            return False
        if request.topic != ledger:
            seen_batch = True
            return False
        return seen_batch

    return is_entry


def await_all(rules: list[Rule], feed: Callable[[], None], timeout_s: float = 240.0) -> None:
    """Feeds until each rule has met its request."""
    end = time.monotonic() + timeout_s
    while not all(rule.happened.is_set() for rule in rules):
        assert time.monotonic() < end, [rule for rule in rules if not rule.happened.is_set()]
        feed()
        time.sleep(0.2)
