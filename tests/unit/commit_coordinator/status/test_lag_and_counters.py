"""Lags told from samples, and what a coordinator counts of the decisions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.input.age import SAMPLES_MAX, InputAge
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.epoch_counters import EpochCounters
from tidemark.commit_coordinator.status.open_transactions import OpenTransaction
from tidemark.commit_coordinator.status.sampled_stats import SampledStats
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CommitDecided,
    Counts,
    EpochCommitted,
    EpochPlanned,
    Rewound,
    Stage,
)
from tidemark.epoch_protocol.fold import Verdict
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError


def test_lag_is_the_age_of_the_newest_end_that_is_reached() -> None:
    age = InputAge()
    assert age.seconds(0.0, {}) == 0.0
    for second in range(10):
        age.sample(float(second), {"a": 10 * second, "b": 0})
    assert age.seconds(9.0, {"a": 90}) == 0.0
    assert age.seconds(9.5, {"a": 89}) == 1.5
    assert age.seconds(9.0, {"a": 31}) == 6.0
    # Nothing older was seen: at least so long.
    assert age.seconds(9.0, {"a": 0}) == 9.0
    assert InputAge().seconds(5.0, {"a": 1}) == 0.0


def test_samples_are_bounded_and_old_ones_become_coarse() -> None:
    age = InputAge()
    for second in range(20 * SAMPLES_MAX):
        age.sample(float(second), {"a": second})
    assert len(age._samples) <= SAMPLES_MAX
    last = 20.0 * SAMPLES_MAX - 1
    assert age.seconds(last, {"a": SAMPLES_MAX}) == pytest.approx(last - SAMPLES_MAX, rel=0.1)


def stats(board: ViewBoard, clock: ManualClock, ends: dict[str, int], sharded: bool) -> SampledStats:
    opened = OpenTransaction(Stage.ASSIGN, 0, 12, 8_000)
    status = SimpleNamespace(
        board=board, storage=InMemoryStorage(), clock=clock, open_transaction=lambda: opened
    )
    return SampledStats(cast(StatusSource, status), lambda: ends, lambda *_: True, sharded)


def test_each_stage_lags_at_least_as_much_as_the_one_before() -> None:
    board, clock, ends = ViewBoard(), ManualClock(), {"in:0": 100}
    sampled = stats(board, clock, ends, sharded=False)
    board.show(CoordinatorView())
    sampled.sample()
    clock.advance(4.0)
    ends["in:0"] = 150
    board.show(
        CoordinatorView(
            taken_next={"in:0": 140},
            source_next={"in:0": 90},
            shuffled_records=140,
            dead_letters=5,
            committed=Counts(input=85),
            uncommitted=Counts(input=20),
            uncommitted_transactions=1,
        )
    )
    sampled.sample()
    assert sampled.lags is not None
    assert sampled.lags.records == {"shuffle": 10, "assign": 10 + 135 - 105, "commit": 60}
    assert sampled.lags.seconds == {"shuffle": 4.0, "assign": 4.0, "commit": 4.0}
    assert sampled.oldest_transaction_s == 8.0
    # No metadata table there: unknown, and nothing else suffers.
    assert sampled.table is None


def test_without_a_shuffle_stage_the_assigners_lag_behind_the_input() -> None:
    board, clock = ViewBoard(), ManualClock()
    sampled = stats(board, clock, {"in:0": 9}, sharded=True)
    board.show(CoordinatorView(taken_next={"in:0": 9}, source_next={"in:0": 2}, uncommitted_transactions=1))
    sampled.sample()
    assert sampled.lags is not None
    assert sampled.lags.records == {"assign": 0, "commit": 7}


def test_lags_are_unknown_while_kafka_does_not_answer() -> None:
    board, clock = ViewBoard(), ManualClock()
    sampled = stats(board, clock, {"in:0": 9}, sharded=False)
    sampled.sample()
    assert sampled.lags is not None

    def refuse() -> dict[str, int]:
        raise KafkaUnavailableError("no broker")

    sampled._input_ends = refuse
    sampled.sample()
    assert sampled.lags is None


def test_only_what_this_coordinator_decided_counts() -> None:
    term = 3
    counters = EpochCounters(lambda: term)

    def take(entry: Any, verdict: Verdict = Verdict.APPLIED) -> None:
        counters.observe(Applied(0, entry, verdict))

    def planned(of: int, epoch: int) -> EpochPlanned:
        return EpochPlanned(of, epoch, 1, 0, 9, "i", "0", "", 0)

    def decided(of: int, epoch: int) -> CommitDecided:
        return CommitDecided(of, epoch, 1, "1", "2", "p", "s", 0)

    def committed(of: int, epoch: int) -> EpochCommitted:
        return EpochCommitted(of, epoch, 1, "i", "2", 0)

    for entry in (planned(1, 1), decided(1, 1), committed(1, 1), planned(1, 2), decided(1, 2)):
        take(entry)
    assert not any(counters.attempts.values())
    # The second epoch was decided by the coordinator before.
    take(committed(3, 2))
    assert +counters.recommits == {"takeover": 1}
    for entry in (planned(3, 3), decided(3, 3), committed(3, 3)):
        take(entry)
    assert +counters.recommits == {"takeover": 1}
    take(planned(3, 4))
    take(planned(3, 4), Verdict.OUT_OF_PLACE)
    take(AttemptVoided(3, 4, 1, "foreign commit"))
    take(Rewound(3, 1, 9, "0", "foreign commit"))
    assert counters.attempts == {"planned": 2, "committed": 2, "voided": 1}
    assert counters.rewinds == 1
