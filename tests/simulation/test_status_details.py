"""What `status` names: who holds readers back, what an attempt lacks, other engines' table services."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from prometheus_client import generate_latest

from testing.clock import ManualClock
from tests.simulation.commit_path import CommitPath, MemoryWorker
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import first_epoch
from tests.simulation.scripted_tagger import SHARDS, TABLE
from tests.unit.table_files import write_config
from tidemark.cli.commands.admin import add_run, run_warnings, status_lines
from tidemark.cli.run.run_metrics import RunMetrics
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service import Facts
from tidemark.commit_coordinator.calls.terminal_failures import TerminalFailures
from tidemark.commit_coordinator.calls.unreported import unreported
from tidemark.commit_coordinator.commit.context import TakenOut
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.view import ViewBoard, take_view
from tidemark.commit_coordinator.domain.actions import Wait
from tidemark.commit_coordinator.domain.next_action import Observed
from tidemark.commit_coordinator.input.lag import InputLag
from tidemark.commit_coordinator.opening.configured_stats import OtherStats
from tidemark.commit_coordinator.status.document import StatusSource, blocked_readers
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.status.kafka_probe import KafkaProbe
from tidemark.commit_coordinator.status.open_transactions import OpenTransaction, OpenTransactions
from tidemark.commit_coordinator.status.table_services import table_services
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.config import Address, load_config
from tidemark.config.run_file import RunFile
from tidemark.epoch_protocol.entries import Stage, TransactionBegun, encode_entry
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_writer.tasks import run_task
from tidemark.table_status.messages import status_document, status_message, status_of
from tidemark.table_status.services import OwnServices, ServiceKindState
from tidemark.table_status.status import MissingPart, OpenTransactionState, Status, TimelineState
from tidemark.table_status.warnings import StatusWarning, WarningKind

NOWHERE = Address("127.0.0.1", 1)
KAFKA_S = 60.0
FACTS = Facts(TABLE, SHARDS, 1, 3_000, 1)


def test_the_slot_of_the_oldest_open_transaction_is_named_until_it_ends(path: CommitPath) -> None:
    ledger = path.topics.ledger_partition
    looks = OpenTransactions(path.client, path.client.admin(), ledger, path.clock)
    assert looks.oldest() is None
    producers = []
    for slot in (4, 2):
        producer = path.client.producer(f"{TABLE}-assign-{slot}")
        producer.init()
        producer.begin()
        producer.produce(ledger, encode_entry(TransactionBegun(Stage.ASSIGN, slot, f"n{slot}")))
        producer.flush()
        producers.append(producer)
        path.clock.advance(1.0)
    path.clock.advance(3.0)
    found = looks.oldest()
    assert found is not None
    assert (found.stage, found.slot, found.age_ms) == (Stage.ASSIGN, 4, 5_000)
    producers[0].abort()
    second = looks.oldest()
    assert second is not None
    assert (second.slot, second.age_ms) == (2, 4_000)
    producers[1].commit()
    assert looks.oldest() is None
    looks.close()


def test_a_short_transaction_is_no_warning_and_a_long_one_names_its_process() -> None:
    transaction = OpenTransaction(Stage.ASSIGN, 4, 17, age_ms=12_000)
    blocker = OpenTransactionState("assign", 4, "assigner-1", "host:9", 17, transaction.age_ms)
    [text] = blocked_readers(blocker, lease_ms=3_000)
    assert "slot 4 of the assign stage (assigner-1 at host:9) holds all readers back" in text
    assert "open for 12 s" in text
    assert blocked_readers(structs.replace(blocker, age_ms=2_999), 3_000) == []
    assert "no process has that slot" in blocked_readers(structs.replace(blocker, process=None), 3_000)[0]
    assert blocked_readers(None, 3_000) == []


def missing(path: CommitPath, writer: str = "w1") -> list[str]:
    return unreported(path.attempts.unreported(), writer, path.storage, path.topics, FACTS)


def test_partitions_that_are_not_written_are_named_one_by_one(path: CommitPath) -> None:
    assert missing(path) == []
    first_epoch(path)
    path.step_coordinator()
    assert missing(path, "") == ["a writer: none has asked for work yet"]
    data, index = f"{path.topics.data}[0]: no file yet", f"{path.topics.index}[0]: no file yet"
    assert missing(path) == ["writer w1", data, index]
    outcomes = [run_task(task, MemoryWorker(path.client, path.clock)) for task in path.run_open_attempt()]
    assert missing(path) == ["writer w1: all files are there, its report is not"]
    # One of the announced data files is lost again: two file groups, two files.
    planned = path.state().planned
    assert planned is not None
    [file] = [each.path for each in path.storage.list("d2") if each.name.endswith(".parquet")]
    content = path.storage.read(file)
    path.storage.delete(file)
    assert missing(path) == ["writer w1", f"{path.topics.data}[0]: 1 of 2 files"]
    path.storage.create(file, content)
    assert path.report(planned.epoch, planned.attempt, planned.instant or "", outcomes)
    assert missing(path) == []


def services_of(path: CommitPath) -> tuple[TimelineState, TimelineState]:
    found = table_services(path.storage, OwnServices())
    assert found.table is not None
    assert found.metadata_table is not None
    return found.table, found.metadata_table


def test_table_services_are_another_engines_and_shown_as_the_timelines_have_them(path: CommitPath) -> None:
    first_epoch(path)
    path.run_until_idle()
    shown = table_services(path.storage, OwnServices())
    assert (shown.run_by, shown.scheduled_by_tidemark) == ("Hudi on Spark", [])
    assert shown.table == TimelineState(3, [], None, None)
    assert shown.warnings == []
    other = OtherEngine(path.storage, path.clock, path.action)
    scheduled = other.schedule_compaction(METADATA_TABLE_ROOT)
    assert services_of(path)[1].pending == [f"{scheduled}.compaction.requested"]
    completed = other.clean()
    assert services_of(path)[0].last_clean == completed


def test_a_long_timeline_is_warned_of(path: CommitPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.commit_coordinator.status.table_services._TIMELINE_FILES_WARN", 2)
    first_epoch(path)
    path.run_until_idle()
    warned = table_services(path.storage, OwnServices()).warnings[0]
    assert "the table's timeline has 3 files: set table_services.enabled, or let Hudi on Spark" in warned
    ours = OwnServices(enabled=True, kinds=[ServiceKindState(kind="archive")])
    shown = table_services(path.storage, ours)
    assert (shown.run_by, shown.scheduled_by_tidemark, shown.own) == ("Tidemark", ["archive"], ours)
    assert "says what holds it back" in shown.warnings[0]


def test_who_left_for_good_is_shown_until_somebody_has_come_and_time_has_passed() -> None:
    clock = ManualClock(1_000)
    said = TerminalFailures(clock)
    said.say(Stage.SHUFFLE, "assigner-1", "input was deleted")
    assert [each.reason for each in said.current(lambda _: True)] == ["input was deleted"]
    clock.advance(700.0)
    assert said.current(lambda _: True) == []
    assert [each.process_id for each in said.current(lambda stage: stage is Stage.ASSIGN)] == ["assigner-1"]
    for number in range(20):
        said.say(Stage.ASSIGN, f"p{number}", "x")
    assert len(said.current(lambda _: False)) == 10


RUNNING = RunFile("k", NOWHERE, NOWHERE, 1, stopped={"assigner": "has stopped: input was deleted"})


def document(*asked: Any, **more: Any) -> dict[str, Any]:
    """What `tidemark status --json` prints of `taken`."""
    found = status_document(taken(*asked, **more))
    add_run(found, RUNNING)
    return found


def page_of(status: Status) -> str:
    """As the command line prints what it got over the wire."""
    return "\n".join(status_lines(status_of(status_message(status)), run_warnings(RUNNING)))


def taken(
    path: CommitPath,
    seen: Observed,
    transaction: OpenTransaction | None = None,
    ends: Callable[[], dict[str, int]] = lambda: {"in:0": 9},
    unfilled: Sequence[str] = (),
    dropped: Mapping[str, float] | None = None,
    taken_out: TakenOut | None = None,
    indexes_taken_out: Sequence[TakenOut] = (),
    other: Callable[[], OtherStats | None] = lambda: None,
) -> Status:
    """What `tidemark status` gets of a table with one assigner, by the product's own parts."""
    members = Members(TABLE, path.client, path.clock, 3_000, {Stage.SHUFFLE: ["in:0"], Stage.ASSIGN: ["0"]})
    for stage in Stage:
        members.join(stage, "assigner-1", "127.0.0.1:9", 0)
        members.renew(stage, "assigner-1", [], 0, {"tier_hot": 3.0, **(dropped or {})})
    board, said = ViewBoard(), TerminalFailures(path.clock)
    said.say(Stage.SHUFFLE, "assigner-0", "input was deleted")
    context = path.context
    assert context is not None
    now_ms, nothing, inputs = path.clock.now_ms(), Wait("nothing"), InputPositions()
    view = take_view(
        context.fold(),
        seen,
        nothing,
        4,
        now_ms,
        inputs,
        taken_out=taken_out,
        indexes_taken_out=indexes_taken_out,
    )
    board.show(view)
    source = StatusSource(
        table=TABLE,
        path=path.storage.base_uri,
        board=board,
        members=members,
        history=EpochHistory(),
        placement=Placement(1 << 20, path.ids),
        storage=path.storage,
        clock=path.clock,
        kafka=KafkaProbe(InputLag(ends, lambda *_: True, path.clock).document, lambda: transaction),
        writer_asked=lambda: 2,
        verification=PeriodicVerification(0, lambda *_: {}, path.clock),
        writer=lambda: "writer-1",
        not_reported=lambda: ["writer writer-1", "t.data[0]: no file yet"],
        open_transaction=lambda: transaction,
        terminal_failures=lambda: said.current(lambda _: True),
        lease_ms=3_000,
        unfilled_columns=lambda: unfilled,
        other_stats=other,
    )
    return source.take(KAFKA_S)


def test_columns_that_table_schema_lacks_are_named(path: CommitPath) -> None:
    path.step_coordinator()
    warned = [
        each for each in document(path, Observed(), unfilled=["extra", "x"])["warnings"] if "extra, x" in each
    ]
    assert len(warned) == 1
    assert "table.schema" in warned[0]


def test_column_stats_that_are_not_the_configured_ones_are_told(path: CommitPath) -> None:
    def refuses() -> OtherStats:
        raise OSError("no answer")

    path.step_coordinator()
    found = taken(path, Observed(), other=lambda: OtherStats("a, not b", "Make them")).warnings
    (told,) = (each for each in found if each.kind is WarningKind.OTHER_STATS)
    assert told.text == "a, not b. Make them"
    found = taken(path, Observed(), other=refuses).warnings
    (told,) = (each for each in found if each.kind is WarningKind.OTHER_STATS)
    assert "no answer" in told.text


@pytest.mark.parametrize(("minutes", "warned"), [(59, True), (61, False)])
def test_stats_that_were_taken_out_are_told_for_an_hour(path: CommitPath, minutes: int, warned: bool) -> None:
    path.step_coordinator()
    at_ms = path.clock.now_ms() - minutes * 60_000
    out = TakenOut("column_stats, partition_stats", "another writer switched them on", at_ms)
    found = [
        each.text for each in taken(path, Observed(), taken_out=out).warnings if "taken out" in each.text
    ]
    assert found == [
        text for text in found if text.startswith("column_stats, partition_stats: another writer")
    ]
    options = "Give other writers the options that `tidemark table describe` prints"
    assert all(text.endswith(options) for text in found)
    assert bool(found) is warned


def test_fields_that_records_are_taken_without_are_named_by_topic(path: CommitPath) -> None:
    path.step_coordinator()
    left_out = {"dropped_field/in/price": 5.0, "dropped_field/in/a/b": 9.0, "dropped_field/other/x": 1.0}
    found = document(path, Observed(), dropped=left_out)
    warned = [each for each in found["warnings"] if "table.schema lacks, and records" in each]
    assert ["topic in " in each for each in warned] == [True, False]
    assert "a/b (18 records), price (10 records)" in warned[0]
    assert "x (2 records)" in warned[1]
    assert "input.unknown_fields: ignore" in warned[0]
    assert found["dropped_fields"][0] == {"topic": "in", "field": "a/b", "records": 18}
    assert found["services"]["assign"][0]["figures"] == {"tier_hot": 3.0}


def test_without_kafka_the_rest_is_told_and_what_is_missing(path: CommitPath, tmp_path: Path) -> None:
    def refuses() -> dict[str, int]:
        raise KafkaUnavailableError("no broker answers")

    first_epoch(path)
    path.step_coordinator()
    found = taken(path, Observed(), ends=refuses)
    assert found.lag is None
    assert found.in_flight.epoch == 1
    assert found.missing == [MissingPart(part, "no broker answers") for part in ("lag", "open_transaction")]
    assert found.warnings[0].kind is WarningKind.KAFKA_SILENT
    page = page_of(found)
    assert "lag           unknown: no broker answers" in page
    assert "WARNING       lag and open transactions are unknown: no broker answers" in page
    message = status_message(found)
    assert not message.HasField("lag")
    assert [each.part for each in message.missing] == ["lag", "open_transaction"]
    assert 'tidemark_run_lag_offsets{stage="commit"} NaN' in gauges(found, tmp_path).replace(
        ',table="orders"', ""
    )


def gauges(found: Status, folder: Path) -> str:
    metrics = RunMetrics(load_config(write_config(folder)), {}, {}, lambda _: None)
    metrics._show(found)
    return generate_latest(metrics._metrics.registry).decode().replace('{table="orders"}', "")


def test_the_page_and_the_metrics_say_what_is_wrong(path: CommitPath, tmp_path: Path) -> None:
    first_epoch(path)
    path.step_coordinator()
    open_since = OpenTransaction(Stage.ASSIGN, 0, 12, 8_000)
    observed = Observed(halted="epoch 1 was given up", trouble="no space", lock_held="it is held")
    found = taken(path, observed, open_since)
    page = page_of(found)
    for said in (
        "in flight     epoch 1 attempt 1",
        "waits for writer writer-1, t.data[0]: no file yet",
        "open          transaction of assign slot 0 (assigner-1) for 8000 ms",
        "nothing is scheduled here: compaction and cleaning are Hudi on Spark's",
        "table: last compaction never seen",
        "WARNING       halted: epoch 1 was given up",
        "WARNING       no space",
        "WARNING       commits wait: it is held",
        "WARNING       shuffle stage: assigner-0 has stopped: input was deleted",
        "WARNING       slot 0 of the assign stage (assigner-1 at 127.0.0.1:9) holds all readers back",
        "WARNING       tidemark run: assigner has stopped: input was deleted",
    ):
        assert said in page, page
    assert "tidemark_run_halted 1.0" in gauges(found, tmp_path)


def test_a_table_that_goes_on_has_nothing_to_say(path: CommitPath, tmp_path: Path) -> None:
    first_epoch(path)
    path.run_until_idle()
    found = taken(path, Observed())
    page = page_of(found)
    assert "holds all readers back" not in page
    assert "open          transaction" not in page
    assert (found.coordinator.halted, found.coordinator.blocked_epoch) == (None, None)
    assert "tidemark_run_halted 0.0" in gauges(structs.replace(found, gave_up=[]), tmp_path)


def test_storage_that_refuses_does_not_keep_status_from_saying_so(
    path: CommitPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_epoch(path)
    path.step_coordinator()

    def refuse(_: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(path.storage, "names", refuse)
    found = taken(path, Observed(trouble="the table's storage refuses"))
    text = "the table's timelines cannot be listed: [Errno 5] Input/output error"
    assert StatusWarning(WarningKind.TIMELINES_UNREADABLE, text) in found.warnings
    assert status_document(found)["table_services"]["warnings"] == [text]
    assert "WARNING       the table's storage refuses" in page_of(found)


def test_what_kafka_refuses_is_not_laid_to_the_storage(path: CommitPath) -> None:
    path.step_coordinator()
    seen = Observed(trouble="Kafka refuses", trouble_of_kafka=True)
    found = taken(path, seen, dropped={"kafka_refuses": 1.0})
    told = [(each.kind, each.text) for each in found.warnings if "efuses" in each.text]
    assert [kind for kind, _ in told] == [WarningKind.KAFKA_REFUSES] * len(told)
    assert told[0][1] == "Kafka refuses"
    assert any("Kafka refuses assign slot 0 a right" in text for _, text in told)
