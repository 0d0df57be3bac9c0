"""`tidemark doctor` without a broker: what it says of a sound and of an unsound machine, and that it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testing.ids import SeededIds
from testing.kafka.broker import MemoryBroker
from testing.kafka.client import MemoryKafkaClient
from tests.unit.table_files import new_table, write_config
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.doctor import broker, machine, trial
from tidemark.doctor.checks import Check, CheckStatus, Finding, SkippedError, fails, ok, run_checks, warning
from tidemark.index_assigner.input.positions import INPUT_STARTS_RECORD
from tidemark.ledger_client.topics import topic_specs
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent import inspection
from tidemark.stream_runtime.kafka.confluent.inspection import ClusterFacts, TopicFacts
from tidemark.stream_runtime.kafka.ports import Isolation


def statuses(findings: Iterator[Finding]) -> list[CheckStatus]:
    return [each.status for each in findings]


def doctor(config: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "-c", str(config), "--json", *more])
    document = json.loads(capsys.readouterr().out)
    return code, {each["check"]: each for each in document["checks"]}


def test_an_error_is_a_finding_with_the_checks_remedy():
    def broken() -> Iterator[Finding]:
        yield ok("so far")
        raise OSError("disk on fire")

    def not_asked() -> Iterator[Finding]:
        raise SkippedError("nobody home")

    checks = [Check("broken", broken, "call somebody"), Check("skipped", not_asked, "-")]
    first, second = run_checks(checks, SystemClock(), 60.0)
    assert (first.status, second.status) == (CheckStatus.FAILS, CheckStatus.SKIPPED)
    assert first.findings == (ok("so far"), fails("disk on fire", "call somebody"))


def test_a_check_that_hangs_fails_in_time_and_may_clean_up_at_the_end(monkeypatch: pytest.MonkeyPatch):
    release, cleaned = threading.Event(), threading.Event()

    class SoonLate(threading.Thread):
        """The time of the check that hangs is over soon, and the other one has all of it."""

        def join(self, timeout: float | None = None) -> None:
            super().join(0.01 if self.name == "hangs" and not release.is_set() else timeout)

    monkeypatch.setattr("tidemark.doctor.checks.threading.Thread", SoonLate)

    def hangs() -> Iterator[Finding]:
        release.wait(60.0)
        cleaned.set()
        yield ok("too late")

    def next_one() -> Iterator[Finding]:
        release.set()
        yield ok("done")

    results = list(
        run_checks([Check("hangs", hangs, "wait"), Check("next", next_one, "")], SystemClock(), 60.0)
    )
    assert [each.status for each in results] == [CheckStatus.FAILS, CheckStatus.OK]
    assert "no answer within 60 s" in results[0].findings[0].text
    assert cleaned.is_set()


def test_the_worst_finding_is_the_checks_status():
    checks = [
        Check("slow", lambda: [ok("a"), warning("b", "c")], ""),
        Check("broken", lambda: [fails("a", "b"), warning("c", "d")], ""),
    ]
    results = run_checks(checks, SystemClock(), 60.0)
    assert [each.status for each in results] == [CheckStatus.WARNING, CheckStatus.FAILS]


def test_topics_that_are_hidden_are_not_taken_for_missing(tmp_path: Path):
    config = load_config(write_config(tmp_path))
    hidden = TopicFacts(0, 0, None, frozenset(), hidden=True)
    inspection = SimpleNamespace(
        cluster=lambda: ClusterFacts("", {1: "k:1"}), topic=lambda _: hidden, topics=list
    )
    (own,) = broker.own_topics(cast(Any, inspection), config)
    assert (own.status, "may not see 7 of" in own.text) == (CheckStatus.FAILS, True)
    (read,) = broker.input_topics(cast(Any, inspection), config)
    assert read.status is CheckStatus.FAILS
    assert "--operation DESCRIBE --operation READ" in read.remedy


def test_transactions_are_tried_and_nothing_is_left():
    memory = MemoryBroker(SystemClock(), SeededIds(2))
    client = MemoryKafkaClient(memory)
    findings = list(trial.transactions(client, "orders", SystemClock(), SeededIds(1)))
    assert {each.status for each in findings} == {CheckStatus.OK}
    assert memory.topic(f"orders.doctor-{SeededIds(1).uuid()[:8]}") is None


def test_readers_that_see_what_was_aborted_are_refused(monkeypatch: pytest.MonkeyPatch):
    client = MemoryKafkaClient(MemoryBroker(SystemClock(), SeededIds(2)))
    real = client.partition_reader
    monkeypatch.setattr(client, "partition_reader", lambda _: real(Isolation.READ_UNCOMMITTED))
    findings = list(trial.transactions(client, "orders", SystemClock(), SeededIds(1)))
    assert [each.status for each in findings] == [CheckStatus.FAILS]
    assert "readers see 3" in findings[0].text


def test_skew_of_the_broker_is_a_warning():
    assert statuses(trial._skew(10_500, 10_000, 11_000)) == [CheckStatus.OK]
    assert statuses(trial._skew(4_000, 10_000, 11_000)) == [CheckStatus.WARNING]
    assert "-6.0 s" in next(trial._skew(4_000, 10_000, 11_000)).text


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"transaction.partition.verification.enable": "true"}, CheckStatus.OK),
        ({"transaction.partition.verification.enable": "false"}, CheckStatus.FAILS),
        ({}, CheckStatus.FAILS),
        (
            {"transaction.partition.verification.enable": "true", "transaction.max.timeout.ms": "5000"},
            CheckStatus.FAILS,
        ),
    ],
)
def test_brokers_have_to_verify_transactions(settings: dict[str, str], status: CheckStatus):
    assert statuses(broker._broker(1, settings, 10_000)) == [status]


def test_own_topics_that_were_changed_are_named_with_the_way_back(tmp_path: Path):
    config = load_config(write_config(tmp_path))
    spec = next(each for each in topic_specs(config) if each.name == "orders.ledger")
    sound = TopicFacts(spec.partitions, 1, dict(spec.config), None)
    assert list(broker._differences(spec, sound)) == []
    changed = TopicFacts(2, 1, {**spec.config, "retention.ms": "1000", "max.message.bytes": "5"}, None)
    findings = list(broker._differences(spec, changed))
    assert [each.status for each in findings] == [CheckStatus.FAILS, CheckStatus.FAILS, CheckStatus.WARNING]
    assert "retention.ms=-1" in findings[1].remedy
    assert list(broker._differences(spec, TopicFacts(1, 1, None, None))) == []


@pytest.mark.parametrize(("replicas", "in_sync", "warned"), [(3, "1", 1), (3, "2", 0), (1, "1", 0)])
def test_three_replicas_of_which_one_is_enough_are_warned_of(replicas: int, in_sync: str, warned: int):
    found = list(broker._in_sync("t", TopicFacts(1, replicas, {"min.insync.replicas": in_sync}, None)))
    assert [each.status for each in found] == [CheckStatus.WARNING] * warned
    assert list(broker._in_sync("t", TopicFacts(1, replicas, None, None))) == []


def test_missing_rights_on_a_topic_are_named():
    facts = TopicFacts(1, 1, None, frozenset({"DESCRIBE", "READ"}))
    (finding,) = broker._allowed("in", facts, frozenset({"READ", "WRITE"}))
    assert (finding.status, "may not WRITE" in finding.text) == (CheckStatus.FAILS, True)
    assert list(broker._allowed("in", facts, frozenset({"READ"}))) == []


@pytest.mark.parametrize(
    ("allowed", "lacking"),
    [
        (None, ""),
        (frozenset({"ALL"}), ""),
        (frozenset({"READ", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}), ""),
        (frozenset({"READ", "DESCRIBE_CONFIGS"}), "lacks ALTER_CONFIGS on 1"),
        (frozenset({"READ"}), "lacks ALTER_CONFIGS, DESCRIBE_CONFIGS on 1"),
    ],
)
def test_a_coordinator_that_cannot_change_settings_of_topics_is_a_warning(
    allowed: frozenset[str] | None, lacking: str
):
    rights = broker._lacking(TopicFacts(1, 1, None, allowed), broker._SETTINGS_NEED)
    assert bool(rights) == bool(lacking)
    found = broker._settings_kept("t", {"t.keyed": rights})
    assert found.status == CheckStatus.WARNING
    assert lacking in found.text
    assert "docs/security.md" in found.remedy


@pytest.mark.parametrize("may_change", [True, False])
def test_settings_that_a_start_changes_fail_only_where_it_may_not(tmp_path: Path, may_change: bool):
    config = load_config(write_config(tmp_path))
    rights = frozenset({"READ", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"} if may_change else {"READ"})
    former = {"retention.ms": "1000", "retention.bytes": "2000", "max.message.bytes": "5"}
    expected = {"orders.tombstones": 2, "orders.dead-letter": 3}
    for spec in topic_specs(config):
        if spec.name == "orders.tombstones":
            for longer in ("-1", "999999999999"):
                kept = TopicFacts(spec.partitions, 1, {**spec.config, "retention.ms": longer}, rights)
                assert list(broker._differences(spec, kept)) == []
        facts = TopicFacts(spec.partitions, 1, {**spec.config, **former}, rights)
        warned = [each for each in broker._differences(spec, facts) if each.status == CheckStatus.WARNING]
        assert len(warned) == (expected.get(spec.name, 1) if may_change else 0)
        assert all("The next start" in each.remedy for each in warned)


def test_more_memory_than_there_is_fails(tmp_path: Path):
    file = write_config(tmp_path)
    file.write_text(file.read_text().replace("path: ./state", "path: ./state, memory: 100TiB"))
    assert statuses(machine.memory(load_config(file))) == [CheckStatus.FAILS]


def test_memory_has_a_merge_of_table_services_unless_they_are_off(tmp_path: Path):
    file = write_config(tmp_path)
    (on,) = machine.memory(load_config(file))
    assert "a merge of table services 356" in on.text
    file.write_text(file.read_text() + "table_services: {enabled: false}\n")
    (off,) = machine.memory(load_config(file))
    assert "table services" not in off.text


def test_broker_that_does_not_answer_fails_and_what_rests_on_it_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inspection, "_TIMEOUT_S", 1.0)
    new_table(tmp_path / "table")
    (tmp_path / "state").mkdir(mode=0o755)
    before = sorted(each.relative_to(tmp_path) for each in tmp_path.rglob("*"))
    code, found = doctor(write_config(tmp_path), capsys)
    assert (code, found["kafka"]["status"]) == (1, "fails")
    assert "kafka.bootstrap.servers" in found["kafka"]["findings"][0]["remedy"]
    assert "Connection refused" in found["kafka"]["findings"][0]["text"]
    assert {found[name]["status"] for name in ("input topics", "own topics", "transactions", "start")} == {
        "skipped"
    }
    assert found["table"]["status"] == "ok"
    assert any("chmod 700" in (each["remedy"] or "") for each in found["state folder"]["findings"])
    left = {each.relative_to(tmp_path) for each in tmp_path.rglob("*")} - {
        Path("orders.avsc"),
        Path("orders.yaml"),
    }
    assert sorted(left) == before


def test_configuration_that_cannot_be_used_is_one_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write_config(tmp_path)
    file.write_text(file.read_text().replace("ordering: at", "ordering: att"))
    code, found = doctor(file, capsys)
    assert code == 1
    assert "has no field att" in found["configuration"]["findings"][0]["text"]
    assert [name for name, each in found.items() if each["status"] == "fails"] == ["configuration"]


def test_port_in_use_by_a_stranger_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        file = write_config(tmp_path, "embedded", f"127.0.0.1:{taken.getsockname()[1]}")
        _, found = doctor(file, capsys)
    assert found["ports"]["status"] == "fails"
    assert f"process {os.getpid()}" in found["ports"]["findings"][0]["text"]


def test_table_of_another_shape_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    new_table(tmp_path / "table")
    file = write_config(tmp_path, "embedded")
    file.write_text(file.read_text().replace("record_key: [id]", "record_key: [day]"))
    _, found = doctor(file, capsys)
    assert found["table"]["status"] == "fails"
    assert "table.record_key" in found["table"]["findings"][0]["text"]


def test_what_a_start_refuses_of_the_table_doctor_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    new_table(tmp_path / "table")
    file = write_config(tmp_path, "embedded")
    record = tmp_path / "table/.hoodie/.aux/tidemark/configured-columns.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text('{"columns": ["id", "price"]}')
    _, found = doctor(file, capsys)
    assert found["table"]["status"] == "fails"
    assert "lacks price" in found["table"]["findings"][0]["text"]


def test_other_column_stats_than_the_configured_ones_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    new_table(tmp_path / "table")
    file = write_config(tmp_path, "embedded")
    file.write_text(file.read_text().replace("shards: 2", "shards: 2, column_stats: [at]"))
    found = doctor(file, capsys)[1]["table"]
    assert found["status"] == "warning"
    (told,) = (each for each in found["findings"] if each["status"] == "warning")
    assert "table.index.column_stats names at, and the table keeps column stats of no column" in told["text"]
    assert "tidemark index create --column-stats at" in told["remedy"]


def test_what_an_assigner_refuses_at_its_start_doctor_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = write_config(tmp_path, "embedded")
    assert doctor(file, capsys)[1]["assigner"]["status"] == "skipped"
    new_table(tmp_path / "table")
    before = sorted(tmp_path.rglob("*"))
    found = doctor(file, capsys)[1]["assigner"]
    assert found["status"] == "ok"
    assert sorted(tmp_path.rglob("*")) == before
    # Sixteen assigners with one state folder.
    (tmp_path / "state").mkdir(mode=0o700)
    with contextlib.ExitStack() as ends:
        for number in range(16):
            lock = ends.enter_context((tmp_path / "state" / f"index-{number}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        found = doctor(file, capsys)[1]["assigner"]
    assert (found["status"], "another process uses" in found["findings"][0]["text"]) == ("fails", True)
    file.write_text(file.read_text().replace("topics: [orders-in]", "topics: [orders-in], start: latest"))
    record = tmp_path / "table" / INPUT_STARTS_RECORD
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("{ torn")
    found = doctor(file, capsys)[1]["assigner"]
    assert (found["status"], "input-starts.json" in found["findings"][0]["text"]) == ("fails", True)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("spark: {spark.master: mesos://m}", "spark.master"),
        ("spark: {spark.driver.memory: 100m}", "spark.driver.memory"),
        ("spark: {spark.task.maxFailures: '9'}", "is set by Tidemark"),
    ],
)
def test_what_the_writer_refuses_of_the_configuration_the_check_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], section: str, said: str
):
    file = write_config(tmp_path, "embedded")
    file.write_text(f"{file.read_text()}{section}\n")
    assert main(["config", "check", "-c", str(file)]) == 2
    assert said in capsys.readouterr().err
    assert said in doctor(file, capsys)[1]["configuration"]["findings"][0]["text"]


def test_what_the_writer_lacks_on_this_machine_doctor_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    file = write_config(tmp_path, "embedded")
    assert doctor(file, capsys)[1]["writer"]["status"] == "ok"
    file.write_text(file.read_text() + "spark: {spark.master: yarn}\n")
    assert main(["config", "check", "-c", str(file)]) == 0
    capsys.readouterr()
    found = doctor(file, capsys)[1]["writer"]
    assert (found["status"], "HADOOP_CONF_DIR" in found["findings"][0]["text"]) == ("fails", True)


def test_without_a_file_the_machine_alone_is_looked_at(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("python           ok       Python 3.11")
    assert "\x1b" not in out
