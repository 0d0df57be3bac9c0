"""What a running table shows to those who watch it: metrics as documented, lines of JSON, traces."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.e2e.running_table import RunningTable
from tests.otlp_receiver import Received, Receiver

DOCUMENTED = re.compile(r"^\| `(tidemark_\w+)` \|", re.MULTILINE)
EXPOSED = re.compile(r"^# TYPE (tidemark_\w+) ", re.MULTILINE)
OF_EVERY_PROCESS = re.compile(r"tidemark_[a-z]+_(info|process_(cpu|resident|virtual|start|open|max)_\w+)")
SERVICES = ("coordinator", "assigner", "writer")


def check_metrics(running: RunningTable) -> None:
    """All that is documented is there, nothing else, and every service answers."""
    page = running.metrics()
    text = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    shown = {name for name in EXPOSED.findall(page) if not OF_EVERY_PROCESS.fullmatch(name)}
    assert shown == set(DOCUMENTED.findall(text))
    for role in SERVICES:
        assert f'tidemark_run_service_up{{role="{role}",table="accounts"}} 1.0' in page
    written = re.search(
        r'^tidemark_writer_written_rows_total\{operation="insert",table="accounts"\} (\S+)', page, re.M
    )
    assert written is not None
    assert float(written[1]) > 0


def lines_of(running: RunningTable, role: str) -> list[dict[str, Any]]:
    """The lines of a service's log. Plain text are last words before the end, and what libraries say by
    themselves on stderr (Spark's JVM, gRPC, RocksDB).
    """
    lines = (running.folder / "state" / "logs" / f"{role}.log").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def check_logs(running: RunningTable, epoch: int, instant: str) -> None:
    """Every line is an object with the table; those of an epoch name it, with its instant and term."""
    for role in SERVICES:
        found = lines_of(running, role)
        assert found
        assert {line["table"] for line in found} == {"accounts"}
        assert {line["service"] for line in found} == {role}
    for role, said in (
        ("coordinator", f"epoch {epoch} is committed"),
        ("writer", f"written: epoch {epoch} attempt"),
    ):
        (line,) = [each for each in lines_of(running, role) if each["message"].startswith(said)]
        assert (line["epoch"], line["instant"]) == (epoch, instant)
        assert line["took_ms"]["job"] > 0
        assert role == "writer" or line["term"] >= 0


def trace_of(receiver: Receiver, epoch: int) -> list[Received]:
    """The spans of an epoch, [] while the root or a service's part is missing."""
    for spans in receiver.traces().values():
        of_epoch = [span for span in spans if span.attributes.get("tidemark.epoch") == epoch]
        if {"epoch", "assign", "write"} <= {span.name for span in of_epoch}:
            return spans
    return []


def check_trace(spans: list[Received]) -> None:
    """One trace of three services, in the order in which they work."""
    by_name = {span.name: span for span in spans}
    root = by_name["epoch"]
    assert {span.service for span in spans} == {f"tidemark-{role}" for role in SERVICES}
    order = ("assign", "plan", "write", "commit")
    assert [by_name[name].parent for name in order] == [root.span] * 4
    begins = [by_name[name].began_ns for name in order]
    assert begins == sorted(begins)
    assert by_name["spark job"].parent == by_name["write"].span
    assert {name for name, _ in by_name["spark job"].events} == {"task"}
    assert by_name["commit_metadata"].ended_ns <= by_name["commit_data"].ended_ns <= root.ended_ns
