"""`tidemark demo` as a user runs it: proves what it says, replaces its own folder, leaves nothing running."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.running_table import TIDEMARK

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def demo(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """One month of flights; exit code and report."""
    done = subprocess.run(
        [str(TIDEMARK), "demo", "--months", "1", "--dir", str(folder), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def processes_of(folder: Path) -> dict[int, list[str]]:
    """Command lines that name the folder, by process."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if any(str(folder) in part for part in command):
            found[process.pid] = command
    return found


def left_of(folder: Path, timeout_s: float = 60.0) -> dict[int, list[str]]:
    """Processes of the folder that do not end. Spark's children end after their parent, told by a signal."""
    end = time.monotonic() + timeout_s
    while (found := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


# MERGE_ON_READ, the default, is the notebook's (test_notebook).
@pytest.mark.parametrize("table_type", ["copy_on_write"])
def test_demo_proves_every_check_and_leaves_no_process(tmp_path: Path, table_type: str):
    folder = tmp_path / "demo"
    code, report = demo(folder, "--type", table_type)
    assert [check for check in report["checks"] if not check["passed"]] == []
    assert (code, report["proved"]) == (0, True)
    assert report["records"] == 83_844
    assert report["epochs"] >= 2
    assert len(report["checks"]) == 12
    done = {action["kind"] for action in report["table_services"]}
    # No clean of the index: its slice from before the newest write stays, so that this write can be restored.
    assert done >= {"compact-index", "clean-data", "archive"}
    assert {"clean.retain", "archive.max"} <= {each["key"] for each in report["table_service_settings"]}
    assert left_of(folder) == {}
    assert not (folder / "state" / "run.json").exists()
    properties = (folder / "warehouse" / "flights" / ".hoodie" / "hoodie.properties").read_text()
    assert f"hoodie.table.type={table_type.upper()}" in properties
