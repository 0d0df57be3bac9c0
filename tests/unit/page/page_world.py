"""A page with everything behind it in memory: the status document is a dictionary that a test changes."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from testing.memory_storage import InMemoryStorage
from tests.unit.commit_coordinator.admin_parts import admin_service
from tests.unit.typed_status import COUNTS, IDLE, typed_status
from tidemark.admin.v1 import admin_pb2
from tidemark.commit_coordinator.building.answers import passed_records
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import Counts, EpochCommitted, EpochPlanned
from tidemark.epoch_protocol.fold import Verdict
from tidemark.hudi_format.table_config import parse_table_config
from tidemark.ledger_client.fold_reader import Applied
from tidemark.page.key_story import KeyStories
from tidemark.page.overview import Facts
from tidemark.page.page import PageSources, WebPage
from tidemark.page.sources import AdminQuestions, NewestLetters, Pictures, RefusedRecord
from tidemark.record_formats.refusals import reason_named
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.http_server import start_http_server
from tidemark.stream_runtime.ids import SystemIds
from tidemark.table_status.status import Status

LOOPBACK = Address("127.0.0.1", 0)
EVIL = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
FACTS = Facts(
    table="flights",
    config="flights.yaml",
    table_type="merge_on_read",
    topics=("flights",),
    record_key=("flight_date", "carrier"),
    partition=("day",),
    sharded=False,
    uncommitted_entries_max=4_000_000,
    target_bytes=120 << 20,
)
PROPERTIES = {
    "hoodie.table.name": "flights",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": "ts",
}


def letter(number: int, reason: str, detail: str, value: str) -> NewestLetters:
    """A dead letter, the only one."""
    content = value.encode()
    named = reason_named(reason)
    record = RefusedRecord(number, named, detail, "flights", 0, number, 1_700_000_000_000, None, content)
    return NewestLetters([record], Counter([named]))


class PageWorld:
    """Change `status`, `letters` and `found`, then look; `failing` is what `status` raises."""

    def __init__(self) -> None:
        self.status = copy.deepcopy(IDLE)
        self.dead_letters = NewestLetters()
        self.failing: StreamRuntimeError | None = None
        self.asked_status = 0
        self.clock = SystemClock()
        self.history = EpochHistory()
        self.board = ViewBoard()
        self.board.show(CoordinatorView(term=1))
        self.placement = Placement(120 << 20, SystemIds())
        service = admin_service(FACTS.table, status=lambda _: self.make_status(), history=self.history)
        self.admin = AdminQuestions(service, FACTS.table)
        self.stories = KeyStories(
            lambda keys, _: [admin_pb2.LookupResponse.Found(key=key, tier="none") for key in keys],
            InMemoryStorage(),
            parse_table_config(PROPERTIES),
            self.admin.of_instants,
            self.clock,
            8 << 10,
        )

    def commit(self, epoch: int, rows: int = 1_000, took_ms: int = 160) -> None:
        """An epoch that was planned `took_ms` before now, and committed now."""
        now_ms = self.clock.now_ms()
        instant = f"2026112203{epoch:07d}"
        planned = EpochPlanned(0, epoch, 1, 0, epoch * 10, instant, "0", "", now_ms - took_ms)
        committed = EpochCommitted(0, epoch, 1, instant, f"{instant}1", now_ms)
        for entry in (planned, committed):
            self.history.observe(Applied(0, entry, Verdict.APPLIED))
        self.status["last_commit"] = {
            "epoch": epoch,
            "instant": instant,
            "completion": f"{instant}1",
            "detail": None,
        }
        committed_counts = {**COUNTS, "input": rows * epoch, "inserts": rows * epoch}
        self.status["records"] = {**self.status["records"], "committed": committed_counts}
        self.board.show(CoordinatorView(term=1, epoch=epoch, committed=Counts(input=rows * epoch)))

    def make_status(self) -> Status:
        self.asked_status += 1
        if self.failing is not None:
            raise self.failing
        return typed_status(self.status)

    def page(self, at: Address = LOOPBACK) -> WebPage:
        """Not started."""
        pictures = Pictures(
            lambda: passed_records(self.board.current), self.placement.slices, lambda: self.dead_letters
        )
        sources = PageSources(FACTS, self.admin.status, self.admin.epochs, pictures, self.stories, self.clock)
        return WebPage(sources, lambda routes: start_http_server(at, routes), frozenset(("localhost",)))

    @contextmanager
    def served(self) -> Iterator[Address]:
        """Where the page is, while it is."""
        page = self.page()
        page.start()
        try:
            assert page.address is not None
            yield page.address
        finally:
            page.close()
