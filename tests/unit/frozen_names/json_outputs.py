"""Keys of the JSON documents: what each command prints with `--json`, and what travels in the admin API.

The commands run as a user runs them, against a coordinator of the product or on files of a small table.
"""

from __future__ import annotations

import argparse
import io
import json
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.frozen_names.documents import key_paths
from tests.unit.frozen_names.served import GIVEN_UP, Served, served
from tests.unit.table_files import new_table, orders, write_config
from tests.unit.table_verification.damage import Damage
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.cli.main import build_parser, main
from tidemark.commit_coordinator.admin import service, service_calls
from tidemark.commit_coordinator.status import document as status_document
from tidemark.config import load_config
from tidemark.config.run_file import RunFile, write_run_file
from tidemark.console.admin_client import AdminClient, Warmth
from tidemark.demo.flights import StreamCounts
from tidemark.demo.report import Check, DemoReport, UpkeepAction, UpkeepSetting
from tidemark.demo.session import DemoOptions, _tell
from tidemark.epoch_protocol.input_topics import InputTopic, InputTopics, encode_input_topics
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.rpc.channel import call, open_channel

_ASKED: Final = (
    ("flush",),
    ("status",),
    ("lookup", "a"),
    ("epoch", "list"),
    ("epoch", "show", "1"),
    ("dead-letter", "list"),
    ("dead-letter", "show", "0"),
    ("dead-letter", "replay", "--dry-run"),
    ("dead-letter", "replay", "--max-replays", "1"),
    ("dead-letter", "replay"),
    ("input", "accept-topic", "orders-in"),
    ("input", "skip", "--topic", "orders-in", "--partition", "0", "--offset", "4"),
    ("pause",),
    ("resume",),
    ("epoch", "retry", "2"),
    ("services", "list"),
    ("services", "run", "archive", "--wait"),
    ("services", "pause"),
    ("services", "resume"),
)


def commands_with_json() -> set[str]:
    """Every command that takes `--json`, by the parser."""
    return set(_with_json(build_parser(), ""))


def _with_json(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each, of in action.choices.items():
                yield from _with_json(of, f"{name} {each}".strip())
        elif "--json" in action.option_strings:
            yield name


def command_documents(folder: Path, patched: pytest.MonkeyPatch) -> set[str]:
    """`command path` of every key that any of the commands prints."""
    found: dict[str, set[str]] = {}
    printed = [*_asked(folder / "served", patched), *_offline(folder / "offline", patched), _demo()]
    for command, document in printed:
        found.setdefault(command, set()).update(key_paths(document, of=command))
    missing = commands_with_json() - found.keys()
    assert not missing, f"nothing says what these print with --json: {missing}"
    return {f"{command}: {path}" for command, paths in found.items() for path in paths}


def admin_documents(folder: Path, patched: pytest.MonkeyPatch) -> set[str]:
    """`document method path` of every key of the documents in fields `json`."""
    with served(folder, patched) as table:
        at = load_config(table.file).services.coordinator
        with open_channel(at) as channel:
            found = _admin_documents(admin_pb2_grpc.AdminStub(channel))
    return {
        f"document {method}: {path}"
        for method, text in found
        for path in key_paths(json.loads(text), of=method)
    }


def _admin_documents(stub: admin_pb2_grpc.AdminStub) -> list[tuple[str, str]]:
    verified = call(stub.LastVerification, pb.LastVerificationRequest(table="orders"))
    return [
        ("Status", call(stub.Status, pb.StatusRequest(table="orders")).json),
        ("ListEpochs", call(stub.ListEpochs, pb.ListEpochsRequest(table="orders")).json[0]),
        ("ShowEpoch", call(stub.ShowEpoch, pb.ShowEpochRequest(table="orders", epoch=1)).json),
        ("LastVerification", verified.last.json),
        ("ListServices", call(stub.ListServices, pb.ListServicesRequest(table="orders")).json),
        ("DescribeTable", call(stub.DescribeTable, pb.DescribeTableRequest(table="orders")).json),
    ]


def _asked(folder: Path, patched: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    folder.mkdir()
    with served(folder, patched) as table:
        config = load_config(table.file)
        for of_orders in (service, service_calls):
            # No loop takes them here.
            patched.setattr(of_orders, "give_order", lambda *_: None)
        for command in _ASKED:
            yield _run(*command, "-c", str(table.file))
        with patched.context() as warm:
            warm.setattr(AdminClient, "warm_index", lambda *_, **__: Warmth(1, 1, 0, 1, 1))
            yield _run("index", "warm", "-c", str(table.file))
        yield from _status_in_trouble(table, patched)
        services, ended = config.services, {"assigner": "has stopped"}
        running = RunFile(
            "k", services.coordinator, services.metrics, os.getpid(), stopped=ended, failing={"writer": "why"}
        )
        write_run_file(config.state.path, running)
        yield _run("status", "-c", str(table.file))


def _status_in_trouble(table: Served, patched: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    def refuses(*_: object) -> dict[str, Any]:
        raise OSError("no space")

    table.service.parts.board.show(GIVEN_UP)
    with patched.context() as broken:
        broken.setattr(status_document, "table_services", refuses)
        yield _run("status", "-c", str(table.file))


def _offline(folder: Path, patched: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    folder.mkdir()
    config = ("-c", str(write_config(folder)))
    patched.chdir(folder)
    yield _run("table", "create", *config)
    (folder / "old").mkdir()
    old = ("-c", str(write_config(folder / "old")))
    new_table(folder / "old" / "table").commit(orders(("k1", "2026-01-01", 1), ("k2", "2026-01-01", 1)))
    yield _run("verify", *old)
    yield _run("table", "adopt", *old)
    yield _run("index", "create", *old, "--column-stats", "at")
    yield _run("index", "create", *old, "by_at", "--column", "at")
    yield _run("index", "repair", *old, "by_at")
    yield _run("lookup", *old, "--where", "at=1", "--limit", "1")
    yield _run("lookup", *old, "--where", "at=1", "--where", "at=2")
    (folder / "values.txt").write_text("1\n")
    yield _run("lookup", *old, "--where-file", f"at={folder / 'values.txt'}")
    yield _run("index", "drop", *old, "by_at")
    with patched.context() as doubled:
        client = MemoryKafkaClient(MemoryBroker(ManualClock(), SeededIds(1)))
        doubled.setattr(ConfluentKafkaClient, "from_config", lambda *_, **__: client)
        yield _run("table", "adopt", *old, "--new-ledger", "--yes")
        yield _run("table", "rebuild-index", *old, "--shards", "4", "--dry-run")
    Damage(folder / "old" / "table").index("k1", None)
    yield _run("verify", *old, code=1)
    lock = folder / "old" / "table" / ".hoodie" / "lock"
    lock.mkdir()
    (lock / "owner").write_text(json.dumps({"tidemark": {"term": 4, "nonce": "n"}}))
    yield _run("table", "describe", *old)
    yield _run("config", "show", *config)
    yield _run("config", "show", "--effective", *config)
    yield _run("config", "check", *config)
    yield _run("doctor", "--timeout", "30s", code=None)
    yield _run("token", "--role", "read", "--name", "n")
    yield _run("archive", "-o", str(folder / "x.zip"))
    sample = folder / "sample.jsonl"
    sample.write_text("".join(json.dumps({"id": f"k{n}", "day": "2026-01-01"}) + "\n" for n in range(9)))
    yield _run("init", "--sample", str(sample), "--name", "sampled", "--yes")
    yield _left_topic(folder)
    embedded = folder / "embedded.yaml"
    embedded.write_text(Path(config[1]).read_text().replace("127.0.0.1:1}", "embedded}"))
    yield _run("recover", "-c", str(embedded))


def _left_topic(folder: Path) -> tuple[str, Any]:
    record = folder / "table" / ".hoodie" / ".aux" / "tidemark" / "input-topics.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    topics = {name: InputTopic(1, 1) for name in ("orders-in", "returns")}
    record.write_bytes(encode_input_topics(InputTopics(topics)))
    return _run("input", "remove-topic", "returns", "-c", str(folder / "orders.yaml"))


def _demo() -> tuple[str, Any]:
    checks = (Check("n", "1", "1", True),)
    upkeep, settings = (UpkeepAction("archive", 9, 1.0),), (UpkeepSetting("archive.min", "10", "300"),)
    report = DemoReport("t", "c", 1, 1, StreamCounts(), 1.0, 1, 1.0, 2.0, checks, (), (), upkeep, settings)
    out = io.StringIO()
    with redirect_stdout(out):
        _tell(report, DemoOptions(1, "merge_on_read", Path("demo"), as_json=True, yes=True), [])
    return "demo", json.loads(out.getvalue())


def _run(*command: str, code: int | None = 0) -> tuple[str, Any]:
    """The command's name and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ended = main([*command, "--json"])
    assert code is None or ended == code, f"{command} ended with {ended}: {err.getvalue()}"
    words = commands_with_json()
    name = next(name for name in (" ".join(command[:2]), command[0]) if name in words)
    return name, json.loads(out.getvalue())
