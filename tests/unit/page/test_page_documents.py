"""What the page's documents say of a status: states, what to do, steps, rates, tiers, dead letters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.page.page_world import EVIL, FACTS, PageWorld
from tests.unit.typed_status import typed_status
from tidemark.commit_coordinator.building.answers import passed_records
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.dead_letters.newest import READ_MAX, SHOWN_MAX, newest_letters
from tidemark.epoch_protocol.dead_letter_headers import HEADER_REASON, HEADER_REPLAYED
from tidemark.epoch_protocol.entries import Counts
from tidemark.page.dead_letters import dead_letters_document
from tidemark.page.overview import EPOCHS_SHOWN, overview, steps
from tidemark.page.plain_values import TEXT_MAX, plain, user_columns
from tidemark.page.rates import SAMPLES_MAX, Rates
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.table_status.epochs import AttemptRecord
from tidemark.table_status.warnings import StatusWarning, WarningKind

RATES: dict[str, Any] = {"every_s": 1.0, "now": {}, "series": {}}


def document(world: PageWorld) -> dict[str, Any]:
    status = typed_status(world.status)
    return overview(FACTS, status, world.history.newest(EPOCHS_SHOWN), RATES, world.clock.now_ms())


def coordinator(world: PageWorld, **changed: Any) -> None:
    world.status["coordinator"] |= changed
    if halted := changed.get("halted"):
        world.status["warnings"].append(StatusWarning(WarningKind.HALTED, halted))


def test_the_state_is_the_worst_that_holds() -> None:
    world = PageWorld()
    assert document(world)["state"]["name"] == "empty"
    world.commit(1)
    assert document(world)["state"]["name"] == "running"
    coordinator(world, trouble="the storage is full: tried again")
    assert document(world)["state"]["name"] == "attention"
    world.status["paused"] = {"paused": True, "reason": "an upgrade"}
    assert document(world)["state"] == {"name": "paused", "text": "an upgrade"}
    coordinator(world, halted="epoch 2 was not written in 10 attempts", blocked_epoch=2)
    assert document(world)["state"]["name"] == "halted"
    coordinator(world, stopped=True)
    assert document(world)["state"]["name"] == "stopped"
    coordinator(world, term=-1)
    assert document(world)["state"]["name"] == "starting"


def test_warnings_say_what_to_do_and_the_urgent_ones_come_first() -> None:
    world = PageWorld()
    world.status["warnings"] = ["2 assign lanes have no owner: start an assigner"]
    coordinator(world, halted="epoch 2 was not written in 10 attempts", blocked_epoch=2)
    first, second = document(world)["warnings"]
    assert (first["level"], second["level"]) == ("stop", "look")
    assert "tidemark epoch retry 2 -c flights.yaml" in first["todo"]
    coordinator(world, stopped=True)
    assert "No retry helps" in document(world)["warnings"][0]["todo"]


def test_without_kafka_the_flow_lacks_its_lag_alone() -> None:
    world = PageWorld()
    world.status["lag"] = None
    world.status["warnings"] = [StatusWarning(WarningKind.KAFKA_SILENT, "no answer")]
    shown = document(world)
    assert shown["flow"]["input_waiting"] is None
    assert shown["flow"]["input_not_committed"] is None
    assert shown["flow"]["doing"]
    (warning,) = shown["warnings"]
    assert warning["level"] == "wait"
    assert "tidemark doctor -c flights.yaml" in warning["todo"]


def test_table_services_are_shown_by_kind_with_bounded_texts() -> None:
    world = PageWorld()
    assert document(world)["table_services"]["enabled"] is False
    failures = {"in_a_row": 3, "reason": "r" * 9_000, "next_try_ms": 7}
    kind = {"kind": "archive", "held_back": ["h" * 9_000] * 9, "not_due": "few", "failures": failures}
    own = {"enabled": True, "paused": True, "reason": "Spark clusters", "kinds": [kind]}
    world.status["table_services"] = {"run_by": "Tidemark", "own": own}
    shown = document(world)["table_services"]
    assert (shown["paused"], shown["reason"], shown["run_by"]) == (True, "Spark clusters", "Tidemark")
    (archive,) = shown["kinds"]
    assert (archive["kind"], archive["not_due"], archive["open"]) == ("archive", "few", None)
    assert len(archive["held_back"]) == 3
    assert max(map(len, [archive["failed"], *archive["held_back"]])) < TEXT_MAX + 40


def test_long_texts_and_many_warnings_are_cut() -> None:
    world = PageWorld()
    world.status["warnings"] = ["w" * 10_000] * 1_000
    warnings = document(world)["warnings"]
    assert len(warnings) <= 30
    assert max(len(each["text"]) for each in warnings) < TEXT_MAX + 40


def test_steps_cover_the_attempt_from_plan_to_clean_up() -> None:
    timings = {
        "plan_lock": 1.0,
        "plan_open": 2.0,
        "job": 70.0,
        "decide_lock": 3.0,
        "decide_append": 4.0,
        "commit_metadata": 8.0,
        "commit_data": 5.0,
        "commit_clean_up": 2.5,
    }
    attempt = AttemptRecord(1, "T", 1_000, 1_107, 1_130, timings_ms=timings)
    expected = [
        ["plan", 3.0],
        ["write", 100.0],
        ["decide", 7.0],
        ["index", 8.0],
        ["data", 5.0],
        ["clean", 2.5],
    ]
    assert steps(attempt) == expected
    assert steps(structs.replace(attempt, decided_ms=None)) == []


def test_epochs_are_bounded_and_tell_of_attempts_that_were_given_up() -> None:
    world = PageWorld()
    for epoch in range(1, EPOCHS_SHOWN + 20):
        world.commit(epoch)
    shown = document(world)["epochs"]
    assert len(shown) == EPOCHS_SHOWN
    assert shown[0]["epoch"] == EPOCHS_SHOWN + 19
    record = world.history.newest(1)[0]
    [kept] = record.attempts
    lost = structs.replace(kept, voided="a foreign commit", committed_ms=None)
    record.attempts = [lost, structs.replace(kept, attempt=2)]
    told = overview(FACTS, typed_status(world.status), [record], RATES, 0)["epochs"][0]
    assert told["voided"] == [{"attempt": 1, "reason": "a foreign commit"}]
    assert (told["attempts"], told["committed_ms"]) == (2, kept.committed_ms)


def test_tiers_add_up_over_assigners_and_name_their_limits() -> None:
    world = PageWorld()
    stats = {
        "keys_hot": 60.0,
        "keys_rocksdb": 20.0,
        "keys_none": 20.0,
        "hot_bytes": 1_000,
        "hot_bytes_max": 4_000,
        "hot_entries": 10,
        "run_loading_entries": 5,
        "run_loading_entries_max": 8,
        "runs_damaged": 1,
        "run_entries_lacking": 7,
    }
    member = {"slot": 0, "process": "a", "address": "h:1", "lanes": ["0"], "uncommitted_entries": 0}
    world.status["services"]["assign"] = [{**member, "figures": stats}, {**member, "figures": stats}]
    tiers = {each["tier"]: each for each in document(world)["tiers"]}
    assert (tiers["hot"]["bytes"], tiers["hot"]["entries"], tiers["hot"]["share"]) == (2_000, 20, 0.6)
    assert (tiers["hot"]["bytes_max"], tiers["mdt"]["bytes_max"]) == (8_000, None)
    assert tiers["uncommitted"]["entries_max"] == FACTS.uncommitted_entries_max
    assert tiers["none"]["share"] == pytest.approx(0.2)
    names = ("loading", "loading_of", "damaged", "lacking")
    assert [tiers["run"][name] for name in names] == [10, 16, 2, 14]
    assert [tiers["hot"][name] for name in names] == [0, 0, 0, 0]


def test_rates_are_those_of_the_last_seconds_and_never_negative() -> None:
    clock, views = ManualClock(), [CoordinatorView(term=-1)]
    rates = Rates(lambda: passed_records(views[-1]), clock)
    rates.sample()
    assert rates.document()["now"] == {"shuffled": None, "tagged": None, "committed": None}
    for second in range(SAMPLES_MAX + 20):
        counts = Counts(input=second * 500)
        views.append(CoordinatorView(term=1, shuffled_records=second * 1_000, committed=counts))
        rates.sample()
        clock.advance(1.0)
    shown = rates.document()
    assert (shown["now"]["shuffled"], shown["now"]["committed"]) == (1_000.0, 500.0)
    assert len(shown["series"]["committed"]) == SAMPLES_MAX - 1
    views.append(CoordinatorView(term=1, shuffled_records=0))
    rates.sample()
    assert rates.document()["now"]["shuffled"] == 0.0


def test_values_survive_the_browser() -> None:
    assert plain(2**60) == str(2**60)
    assert plain(float("nan")) == "nan"
    assert plain(b"\x00\xff") == "0x00ff"
    assert plain({"a": [1, b"\x01"]}) == '{"a": [1, "0x01"]}'
    assert plain("x" * 1_000).endswith("(1000 characters)")
    assert user_columns({"_hoodie_record_key": "k", "a": 1, "b": None}) == [["a", 1], ["b", None]]


def test_the_newest_dead_letters_come_first_without_notes_of_replays() -> None:
    clock = ManualClock()
    broker = MemoryBroker(clock, SeededIds(1))
    client = MemoryKafkaClient(broker)
    empty = {"read": 0, "by_reason": [], "newest": []}
    assert dead_letters_document(newest_letters(client, "t", clock)) == empty
    place = TopicPartition("t.dead-letter", 0)
    client.admin().create_topics([TopicSpec(place.topic, 1)])
    for number in range(READ_MAX + 30):
        reason = b"not-json" if number % 3 else b"no-key"
        broker.produce(place, None, b"v%d" % number, ((HEADER_REASON, reason),))
    broker.produce(place, None, b"[1]", ((HEADER_REPLAYED, b""),))
    broker.produce(place, b"k" * 1_000, EVIL.encode() + b"\xff", ((HEADER_REASON, EVIL.encode()),))
    found = dead_letters_document(newest_letters(client, "t", clock))
    assert found["read"] == READ_MAX - 1
    assert [reason for reason, _ in found["by_reason"]] == ["not-json", "no-key", EVIL]
    assert len(found["newest"]) == SHOWN_MAX
    newest = found["newest"][0]
    assert (newest["reason"], newest["value"]) == (EVIL, EVIL + "\ufffd")
    assert newest["key"].endswith("(1000 bytes)")
    assert found["newest"][1]["value"] == f"v{READ_MAX + 29}"


@pytest.mark.parametrize(
    ("kind", "level", "todo"),
    [
        (WarningKind.LANE_STOPPED, "stop", "TidemarkLaneStopped"),
        (WarningKind.DIFFERENCES, "stop", "tidemark verify --full -c flights.yaml"),
        (WarningKind.STORAGE_REFUSES, "wait", "tries again by itself"),
        (WarningKind.KAFKA_REFUSES, "wait", "set right what Kafka names"),
        (WarningKind.COMMITS_WAIT, "wait", "the table's lock"),
        (WarningKind.SERVICE_FAILS, "look", "tidemark services list -c flights.yaml"),
        (WarningKind.SERVICES_BEHIND, "look", "TidemarkServicesLate"),
        (WarningKind.SERVICE_HELD_BACK, "look", "TidemarkServiceHeld"),
        (WarningKind.NOT_VERIFIED, "look", ""),
    ],
)
def test_what_to_do_about_a_warning_follows_from_its_kind_not_from_its_words(
    kind: WarningKind, level: str, todo: str
) -> None:
    world = PageWorld()
    words = "halted: commits wait: input stands still: verification as of 1"
    world.status["warnings"] = [StatusWarning(kind, words), words]
    first, second = document(world)["warnings"]
    assert (first["level"], second["level"]) == (level, "look")
    assert todo in first["todo"]
