"""`tidemark table rebuild-index` from its arguments to the new index. What Spark would run runs here."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemark.cli.index_rebuild as command
from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.terms import begin_term
from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.opening import sign_of_life
from tidemark.commit_coordinator.opening.sign_of_life import SIGN, SignOfLife
from tidemark.config import TableConfigFile, load_config
from tidemark.config.model import Address
from tidemark.config.run_file import RunFile, write_run_file
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_services.rebuilding.documents import ShardFile, whole_build
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.rpc.server import start_server
from tidemark.stream_writer.index_rebuild import RebuildJob, encode_job, job_work, run_rows, run_shards
from tidemark.stream_writer.offline import IndexBuild
from tidemark.table_verification.verify import verify_table


def built_here(config: TableConfigFile, build: IndexBuild, say: Callable[[str], None]) -> list[ShardFile]:
    paths = tuple(build.paths)
    job = encode_job(
        RebuildJob(
            config.table.path, config.table.name, build.schema, build.instant, paths, build.token, 32 << 20
        )
    )
    work = job_work(build.slices, 4)
    pieces = [piece for slices in work for piece in run_rows(job, slices)]
    return whole_build(run_shards(job, 0, 1, pieces), len(paths), len(work))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a table with a ledger, in a Kafka in memory."""
    client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
    monkeypatch.setattr(ConfluentKafkaClient, "from_config", lambda *_, **__: client)
    monkeypatch.setattr(command, "build_index", built_here)
    rows = [(f"k{n}", f"2026-01-0{n % 3 + 1}", 1) for n in range(20)]
    new_table(tmp_path / "table").commit(orders(*rows))
    file = write_config(tmp_path)
    assert main(["table", "adopt", "-c", str(file), "--new-ledger", "--yes"]) == 0
    return file


def run(file: Path, *more: str) -> int:
    return main(["table", "rebuild-index", "-c", str(file), *more])


def shards(file: Path) -> int:
    return MetadataTableSnapshot.load(LocalStorage(file.parent / "table")).num_shards


def test_the_index_gets_the_number_and_the_answer_says_what_to_set(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file, "--shards", "8") == 0
    said = capsys.readouterr().out
    assert "8 shards (before: 2) and 20 entries" in said
    assert "{shards: 8, lanes: 2}" in said
    assert shards(file) == 8
    found = verify_table(LocalStorage(file.parent / "table"), lambda _: None)
    assert (found.agrees, found.entries) == (True, 20)
    # The configuration still names 2, as a person's does who runs it twice.
    assert run(file, "--shards", "8", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["former_shards"], document["shards"], document["rebuilt"]) == (8, 8, True)


def test_a_dry_run_estimates_and_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "--shards", "8", "--dry-run") == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert shards(file) == 2


@pytest.mark.parametrize(
    ("number", "why"), [("1", "cannot get fewer"), ("7", "Choose 6 or 8"), ("0", "at least one shard")]
)
def test_a_number_that_cannot_be_had_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], number: str, why: str
) -> None:
    assert run(file, "--shards", number) != 0
    assert why in capsys.readouterr().err
    assert shards(file) == 2


def test_a_disk_without_room_is_named(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0}))
    assert run(file, "--shards", "8") != 0
    assert "0 MiB free" in capsys.readouterr().err


def refused(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says when it refuses; it has changed nothing."""
    before = listed(file.parent / "table")
    assert run(file, "--shards", "8") != 0
    assert listed(file.parent / "table") == before
    assert shards(file) == 2
    return capsys.readouterr().err


def listed(table: Path) -> list[Path]:
    """The table's files, but for those in which a coordinator is just writing its sign of life."""
    partial = f".{Path(SIGN).name}."
    return sorted(path for path in table.rglob("*") if not path.name.startswith(partial))


def test_it_is_refused_while_a_run_serves_the_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(file)
    here = Address("127.0.0.1", 1)
    config.state.path.mkdir(exist_ok=True)
    write_run_file(config.state.path, RunFile("127.0.0.1:1", here, here, os.getpid()))
    assert f"`tidemark run` (process {os.getpid()}) serves this table: stop it first" in refused(file, capsys)


def test_it_is_refused_while_a_coordinator_answers_at_its_address(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(Address("127.0.0.1", 0), [])
    server.set_serving(True)
    write_config(file.parent, coordinator=str(server.address))
    try:
        said = refused(file, capsys)
    finally:
        server.stop(0.0)
    assert f"a coordinator serves at {server.address}: stop the table's services first" in said
    assert run(file, "--shards", "8") == 0


def test_it_is_refused_while_a_coordinator_elsewhere_gives_a_sign_of_life(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_of_life, "CHANGES_EVERY_S", 0.05)
    storage = LocalStorage(file.parent / "table")
    with SignOfLife(begin_term(storage, 1_000), "coordinator-elsewhere"):
        while not storage.exists(SIGN):
            time.sleep(0.01)
        said = refused(file, capsys)
    assert "a coordinator serves" in said
    assert "with another configuration, or on another machine. Stop it first" in said
