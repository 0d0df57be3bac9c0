"""What targets of the Makefile would do; nothing is run."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_clean_leaves_the_demo_which_may_run_and_says_how_to_remove_it() -> None:
    would = subprocess.run(
        ["make", "-n", "clean"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert "rm -rf .venv" in would
    assert "demo" not in would
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    (line,) = [each for each in told.stdout.splitlines() if each.startswith("  make clean ")]
    assert "rm -r tidemark-demo" in line


def test_services_interop_runs_every_judge_that_waits_for_it() -> None:
    """A module that `make test` skips and no target names is never run."""
    would = subprocess.run(
        ["make", "-n", "services-interop"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    texts = {each.name: each.read_text() for each in (ROOT / "tests/interop").glob("test_*.py")}
    waiting = {
        name for name, text in texts.items() if "make services-interop" in text or "every_case" in text
    }
    assert waiting
    assert {name for name in waiting if f"tests/interop/{name}" not in would} == set()
