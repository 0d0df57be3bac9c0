"""What a kill campaign says of all its rounds, and when it fails for a table service that never ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.schedule import Order
from tests.chaos.service_counts import ALWAYS_DUE
from tests.chaos.settings import Settings
from tests.chaos.tally import Tally, tally_lines

LONG_S, SHORT_S = 700.0, 500.0
OTHERS = Counter(dict.fromkeys(ALWAYS_DUE, 2))


def a_round(ended: Counter[str] = OTHERS, **other: Any) -> Any:
    """What a round has done."""
    steps = {"counts": Counter(kill=1), "points": Counter(), "dead_writes": set(), "exits": dict}
    return SimpleNamespace(**{**steps, "ended": ended, **other})


def settings(table_type: str = "merge_on_read", services: bool = True) -> Settings:
    return Settings(Path(), 1, table_type, services=services)


def test_a_kind_that_was_due_and_never_ended_is_named():
    total = Tally()
    total.add(a_round(), settings(), 400.0)
    assert total.never_ended(LONG_S, 1.0) == ["compact-data"]
    assert total.never_ended(SHORT_S, 1.0) == [], "the campaign was short"
    assert total.never_ended(LONG_S, 3.0) == [], "the machine is slow"
    total.add(a_round(Counter({"compact-data": 1})), settings(), 10.0)
    assert total.never_ended(LONG_S, 1.0) == []


@pytest.mark.parametrize("kind", sorted(ALWAYS_DUE))
def test_each_kind_is_due_in_tables_of_both_types(kind: str):
    total = Tally()
    ended = Counter({each: count for each, count in OTHERS.items() if each != kind})
    total.add(a_round(ended), settings("copy_on_write"), 400.0)
    assert total.never_ended(LONG_S, 1.0) == [kind]


def test_a_kind_is_due_only_for_as_long_as_the_settings_make_it_due():
    total = Tally()
    total.add(a_round(), settings("copy_on_write"), 600.0)
    total.add(a_round(), settings(), 100.0)
    assert total.never_ended(LONG_S, 1.0) == []
    total.add(a_round(), settings(), 200.0)
    assert total.never_ended(LONG_S, 1.0) == ["compact-data"], "five minutes in two rounds"
    without = Tally()
    without.add(a_round(Counter()), settings(services=False), 600.0)
    assert without.never_ended(LONG_S, 1.0) == []


def test_a_rollback_is_due_where_another_engines_writer_died():
    total = Tally()
    total.add(a_round(OTHERS + Counter({"compact-data": 1}), dead_writes={"1"}), settings(), 400.0)
    assert total.never_ended(LONG_S, 1.0) == ["rollback"]


def test_faults_are_told_by_kind_and_failpoint():
    orders = [
        Order("exit-at", "coordinator:after_inflight,after_requested"),
        Order("exit-at", "coordinator:after_inflight"),
        Order("freeze-coordinator-at", "after_inflight"),
        Order("first-attempts-fail", "first_begun:exit"),
        Order("kill", "writer"),
    ]
    faults = Counter(order.fault for order in orders)
    points = Counter(f"{order.fault} {point}" for order in orders for point in order.points)
    assert list(tally_lines(faults, points)) == [
        "  exit-at 2: after_inflight 2, after_requested 1",
        "  first-attempts-fail 1: first_begun:exit 1",
        "  freeze-coordinator-at 1: after_inflight 1",
        "  kill 1",
    ]


def test_the_end_tells_rounds_faults_services_and_ends_that_nobody_provoked():
    total = Tally()
    exits = {"writer": Counter({"1: the disk is full": 2})}
    total.add(a_round(Counter({"clean-data": 3}), exits=lambda: exits), settings("copy_on_write"), 400.0)
    total.add(a_round(), settings("copy_on_write"), 400.0)
    assert list(total.lines()) == [
        "  2 x copy_on_write, index plain, 1 brokers",
        "  kill 2",
        "table services that ended: archive-data 2, archive-index 2, clean-data 5, clean-index 2, "
        "compact-index 2",
        "ends that nobody provoked: {'writer 1: the disk is full': 2}",
    ]
