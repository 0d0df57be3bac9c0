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
WRITTEN = re.compile(
    r'^tidemark_writer_written_rows_total\{operation="insert",table="accounts"\} (\S+)', re.MULTILINE
)
SERVICES = ("coordinator", "assigner", "writer")
WAIT_S = 120.0


def check_metrics(running: RunningTable) -> None:
    """All that is documented is there, nothing else, and every service answers."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = set(DOCUMENTED.findall(text))
    seen: dict[str, Any] = {}

    def is_whole() -> bool:
        """A service that is slow is left out of a page, and a writer counts once it has reported."""
        page = running.metrics()
        shown = {name for name in EXPOSED.findall(page) if not OF_EVERY_PROCESS.fullmatch(name)}
        up = [r for r in SERVICES if f'run_service_up{{role="{r}",table="accounts"}} 1.0' in page]
        written = WRITTEN.search(page)
        rows = float(written[1]) if written is not None else 0.0
        seen.update(missing=documented - shown, undocumented=shown - documented, up=up, rows=rows)
        return not seen["missing"] and len(up) == len(SERVICES) and rows > 0

    running.until(is_whole, WAIT_S, lambda: str(seen))
    assert seen["undocumented"] == set()


def lines_of(running: RunningTable, role: str) -> list[dict[str, Any]]:
    """The whole lines of a service's log. Plain text are last words before the end, and what libraries say by
    themselves on stderr (Spark's JVM, gRPC, RocksDB).
    """
    lines = (running.folder / "state" / "logs" / f"{role}.log").read_text(encoding="utf-8").split("\n")[:-1]
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
        line = the_line(running, role, said)
        assert (line["epoch"], line["instant"]) == (epoch, instant)
        assert line["took_ms"]["job"] > 0
        assert role == "writer" or line["term"] >= 0


def the_line(running: RunningTable, role: str, said: str) -> dict[str, Any]:
    """The one line that begins so. Who waits for a commit may be told before the log is."""

    def found() -> list[dict[str, Any]]:
        return [each for each in lines_of(running, role) if each["message"].startswith(said)]

    running.until(found, WAIT_S)
    (line,) = found()
    return line


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
