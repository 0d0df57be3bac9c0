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
