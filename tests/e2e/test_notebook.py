"""The notebook as a user runs it: the demo on a MERGE_ON_READ table, then a table of one's own by `init`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.test_demo import left_of, processes_of

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first-hour.ipynb"


def printed_by(notebook: Path) -> str:
    """The text of all cells' outputs."""
    cells = json.loads(notebook.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(output.get("text", [])) for output in outputs)


def test_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path):
    folder, ran = tmp_path / "first-hour", tmp_path / "ran.ipynb"
    own = {
        name: str(tmp_path / "jupyter") for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")
    }
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "run_notebook.py"), str(NOTEBOOK), str(ran)],
            env={**os.environ, **own, "TIDEMARK_NOTEBOOK_DIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        left = left_of(folder)
    finally:
        # The kernel, and what it started, outlive a run that took too long or failed.
        for pid in processes_of(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    printed = printed_by(ran)
    assert printed.count("ok    ") + printed.count("ok   ") >= 9
    assert "WRONG" not in printed
    assert "83,844 records" in printed
    assert "600 of 600 sampled records can be taken with it" in printed
    assert "stopped with exit code 0" in printed
    assert left == {}
    assert (
        "hoodie.table.type=MERGE_ON_READ"
        in (folder / "demo" / "warehouse" / "flights" / ".hoodie" / "hoodie.properties").read_text()
    )


def test_notebook_in_the_repository_holds_what_a_run_printed():
    printed = printed_by(NOTEBOOK)
    assert "83,844 records" in printed
    assert "stopped with exit code 0" in printed
