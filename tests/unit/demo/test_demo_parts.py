"""The demo's folder, its feeder, what it shows of the services, and what it makes of the proofs."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.table_files import new_table, orders
from tests.unit.typed_status import COUNTS, IDLE, typed_status
from tidemark.config import ConfiguredTableType, load_config
from tidemark.console.errors import CliError
from tidemark.console.state_lock import state_lock
from tidemark.demo.feeder import Feeder
from tidemark.demo.flights import EventStream
from tidemark.demo.folder import MARKER, prepare_folder
from tidemark.demo.progress import Progress, committed_records, tiers
from tidemark.demo.proofs import index_checks, read_with_hudi_rs, where_now
from tidemark.demo.session import DemoOptions, play
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec
from tidemark.table_status.epochs import AttemptRecord, EpochRecord
from tidemark.table_status.status import Status
from tidemark.table_verification.verify import verify_table


def agree(_: str) -> None:
    """What `--yes` says."""


def test_folder_holds_a_configuration_on_ports_of_its_own(tmp_path: Path):
    config = load_config(prepare_folder(tmp_path / "demo", "copy_on_write", Random(1), agree), env={})
    assert config.table.type is ConfiguredTableType.COPY_ON_WRITE
    assert config.kafka.embedded
    ports = {config.services.coordinator.port, config.services.metrics.port}
    assert len(ports) == 2
    assert not ports & {0, 7411, 7412}
    assert Path(config.table.path) == tmp_path / "demo" / "warehouse" / "flights"


def test_own_folder_is_replaced_and_no_other(tmp_path: Path):
    folder = tmp_path / "demo"
    prepare_folder(folder, "merge_on_read", Random(1), agree)
    (folder / "warehouse").mkdir()
    (folder / "warehouse" / "old.parquet").write_text("")
    prepare_folder(folder, "merge_on_read", Random(1), agree)
    assert not (folder / "warehouse").exists()
    assert (folder / MARKER).is_file()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(CliError, match="was not made by `tidemark demo`") as raised:
        prepare_folder(tmp_path / "mine", "merge_on_read", Random(1), agree)
    assert raised.value.exit_code == 2
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_former_demo_is_named_and_kept_until_somebody_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "demo"
    prepare_folder(folder, "merge_on_read", Random(1), agree)
    (folder / "mine.txt").write_text("notes")
    before = set(folder.rglob("*"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(CliError, match="this deletes the former demo in .*add --yes") as raised:
        play(DemoOptions(1, "merge_on_read", folder, as_json=True, yes=False))
    assert raised.value.exit_code == 2
    assert before <= set(folder.rglob("*"))


def test_folder_of_a_demo_that_runs_is_left_alone(tmp_path: Path):
    folder = tmp_path / "demo"
    prepare_folder(folder, "merge_on_read", Random(1), agree)
    with state_lock(folder / "state", "tidemark run"), pytest.raises(CliError, match="is in use by process"):
        prepare_folder(folder, "merge_on_read", Random(1), agree)
    assert (folder / "flights.yaml").is_file()


def test_empty_folder_is_taken_and_a_file_is_refused(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert prepare_folder(tmp_path / "empty", "merge_on_read", Random(1), agree).is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(CliError, match="is a file"):
        prepare_folder(tmp_path / "file", "merge_on_read", Random(1), agree)


def wait_until(holds: Callable[[], bool], timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_feeder_sends_all_records_but_never_runs_far_ahead():
    clock = SystemClock()
    client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
    client.admin().create_topics([TopicSpec("flights", 1)])
    stream = EventStream(1)
    feeder = Feeder(stream, client, "flights", clock, ahead_max=10_000)
    ahead = 0

    def commit() -> None:
        nonlocal ahead
        while not feeder.done:
            ahead = max(ahead, feeder.sent - feeder.committed)
            feeder.committed = feeder.sent
            time.sleep(0.005)

    feeder.start()
    wait_until(lambda: feeder.sent >= 10_000)
    time.sleep(0.2)
    assert feeder.sent < 10_000 + 4_096
    committing = threading.Thread(target=commit)
    committing.start()
    committing.join(120.0)
    assert feeder.error is None
    assert feeder.sent == len(stream)
    assert ahead < 10_000 + 4_096
    end = client.admin().end_offset(TopicPartition("flights", 0), Isolation.READ_UNCOMMITTED)
    assert end == len(stream)


def test_feeder_keeps_its_error_for_the_caller():
    client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
    feeder = Feeder(EventStream(1), client, "nowhere", SystemClock())
    feeder.start()
    wait_until(lambda: feeder.done)
    assert "nowhere" in str(feeder.error)


def status(epoch: int, committed: int, dead: int = 0) -> Status:
    counts = COUNTS | {"input": committed, "inserts": committed}
    members = [
        {"slot": slot, "process": "p", "address": "a", "lanes": [], "uncommitted_entries": 0, "figures": told}
        for slot, told in enumerate(
            ({"keys_hot": 10.0, "hot_entries": 5.0, "keys_mdt": 2.0}, {"keys_hot": 1.0})
        )
    ]
    return typed_status(
        IDLE
        | {
            "records": {"shuffled": 0, "committed": counts, "uncommitted": COUNTS, "dead_letters": dead},
            "last_commit": {"epoch": epoch, "instant": f"i{epoch}"},
            "services": {"assign": members},
        }
    )


def epoch(number: int, took_ms: int | None, instant: str | None = "i") -> EpochRecord:
    committed = None if took_ms is None else 1_000 + took_ms
    attempts = [AttemptRecord(1, "i", 0), AttemptRecord(2, "i", 1_000, committed_ms=committed)]
    return EpochRecord(number, 9, attempts, instant)


def test_rates_are_of_the_last_seconds():
    progress = Progress(1_000, 0.0)
    for second in range(1, 11):
        stats = progress.stats("streaming", float(second), 100 * second, status(second, 50 * second, 1))
    assert (stats.sent_per_s, stats.committed_per_s) == (100.0, 50.0)
    assert stats.lag_records == 1_000 - 501
    idle = progress.stats("streaming", 20.0, 1_000, status(10, 999, 1))
    assert idle.sent_per_s == 0.0
    assert idle.lag_records == 0


def test_latencies_are_of_committed_epochs_with_rows():
    progress = Progress(10, 0.0)
    assert progress.latency_ms(50) is None
    progress.remember([epoch(1, 300), epoch(2, 100), epoch(3, 200), epoch(4, None), epoch(5, 9_000, None)])
    assert (progress.latency_ms(50), progress.latency_ms(99)) == (200.0, 300.0)
    assert progress.stats("x", 1.0, 0, status(2, 0)).commit_latency_ms_last == 100


def test_tiers_are_summed_over_assigners():
    found = {each.name: (each.answered, each.entries) for each in tiers(status(1, 1))}
    assert found == {"hot": (11, 5), "mdt": (2, None)}
    assert committed_records(status(1, 5, 2)) == 7


def test_proofs_read_the_table_twice_over(tmp_path: Path):
    writer = new_table(tmp_path / "table")
    writer.commit(orders(("k1", "2026-01-01", 1), ("k2", "2026-01-02", 1)))
    writer.commit(orders(("k1", "2026-01-01", 2)))
    rows = read_with_hudi_rs(str(tmp_path / "table"))
    assert sorted(zip(rows["id"].to_pylist(), rows["at"].to_pylist(), strict=True)) == [("k1", 2), ("k2", 1)]
    sound = verify_table(LocalStorage(tmp_path / "table"), lambda _: None)
    assert all(check.passed for check in index_checks(sound))
    for info in (tmp_path / "table" / "2026-01-02").glob("*.parquet"):
        info.unlink()
    broken = verify_table(LocalStorage(tmp_path / "table"), lambda _: None)
    assert [check.passed for check in index_checks(broken)] == [False, False, False]


def test_place_of_a_key_is_a_sentence():
    found = {"key": "k", "partition_path": "p", "file_id": "f", "shard": 3, "tier": "hot"}
    assert where_now(found) == "in partition p, file group f, says the index (shard 3, answered by tier hot)"
    assert where_now({**found, "file_id": None}) == "the index has no entry (shard 3)"
