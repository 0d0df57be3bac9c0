"""Table services whose plans Kafka does not take: they pause, and who asked for one gets the right answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.noop_service import Noop
from tests.simulation.test_cannot_go_on import Rounds
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.stored_documents import STORE
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaUnavailableError


def rounds_with(folder: Path, handler: Noop, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    rounds = Rounds(folder)
    rounds.until(lambda view: view.epoch == 2)
    services = rounds.coordinator.services
    monkeypatch.setattr(services, "handlers", {handler.kind: handler})
    monkeypatch.setattr(services, "rules", replace(services.rules, enabled=True))
    return rounds


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("error", [KafkaConfigError("no right"), KafkaUnavailableError("away")], ids=type)
def test_a_service_that_kafka_will_not_have_planned_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, error: Exception
) -> None:
    """Each plan has an instant of its own, so each is another document in the table's folder."""
    handler = Noop(wanted=0 if asked else 1)
    rounds = rounds_with(tmp_path, handler, monkeypatch)
    before, answers = len(rounds.path.storage.list(STORE)), list[tuple[int, str]]()
    if asked:
        rounds.coordinator.services.want(handler.kind, lambda *answer: answers.append(answer))

    def refuse(*_: Any) -> None:
        raise error

    with monkeypatch.context() as refusing:
        refusing.setattr(DecisionsLog, "_transact", refuse)
        for _ in range(200):
            rounds.loop.round(lambda: None)
            rounds.path.clock.advance(0.1)
    assert 0 < len(rounds.path.storage.list(STORE)) - before <= 8
    assert answers == []
    rounds.until(lambda _: handler.kind in rounds.path.state().services, rounds=2_000)
    assert answers == ([(1, "")] if asked else [])


def test_who_asked_gets_the_number_of_an_action_whose_plan_had_no_known_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, answers = Noop(wanted=0), list[tuple[int, str]]()
    rounds = rounds_with(tmp_path, handler, monkeypatch)
    append = DecisionsLog.append

    def taken_in_silence(log: DecisionsLog, *entries: Any) -> Any:
        append(log, *entries)
        raise DeadlineExceededError("5 transactions in a row were not committed")

    rounds.coordinator.services.want(handler.kind, lambda *answer: answers.append(answer))
    with monkeypatch.context() as silent:
        silent.setattr(DecisionsLog, "append", taken_in_silence)
        rounds.loop.round(lambda: None)
    assert answers == []
    rounds.until(lambda _: bool(answers))
    assert answers == [(1, "")]


def test_an_order_that_kafka_does_not_take_for_long_is_answered_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, answers = Noop(wanted=0), list[tuple[int, str]]()
    rounds = rounds_with(tmp_path, handler, monkeypatch)

    def refuse(*_: Any) -> None:
        raise KafkaConfigError("no right to write")

    rounds.coordinator.services.want(handler.kind, lambda *answer: answers.append(answer))
    monkeypatch.setattr(DecisionsLog, "_transact", refuse)
    clock = rounds.path.clock
    began_s = clock.monotonic_s()
    while clock.monotonic_s() < began_s + 900.0:
        rounds.loop.round(lambda: None)
        assert clock.monotonic_s() > began_s + 600.0 or answers == []
        clock.advance(5.0)
    assert answers == [(0, "no right to write")]
