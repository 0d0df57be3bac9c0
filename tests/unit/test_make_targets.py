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


def test_benchmarks_of_services_take_the_arguments_of_full_size() -> None:
    given = {"MERGES_ARGS": "--minutes 60", "EPOCHS_ARGS": "--keys 10000000"}
    order = ["make", "-n", "bench-services", *(f"{name}={text}" for name, text in given.items())]
    would = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "-m bench.service_merges --minutes 60\n" in would
    assert "-m bench.service_epochs --keys 10000000\n" in would


def test_benchmarks_of_indexes_take_the_arguments_of_full_size() -> None:
    """Arguments that are given come last, so they replace the small sizes of the target."""
    given = {
        "STATS_ARGS": "--repeat 9",
        "SECONDARY_ARGS": "--keys 1600000",
        "PARTITIONED_ARGS": "--partitions 10,1000",
        "BUILDS_ARGS": "--keys 10000000",
        "VALUES_ARGS": "--only tidemark",
    }
    order = ["make", "-n", "bench-indexes", *(f"{name}={text}" for name, text in given.items())]
    would = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    stats, secondary = (line for line in would.splitlines() if "-m bench.index_costs" in line)
    assert stats.endswith(" --repeat 9")
    assert "--secondary ts" in secondary
    assert secondary.endswith(" --keys 1600000")
    assert " --partitions 10,1000\n" in would.partition("-m bench.partitioned_costs")[2]
    assert "-m bench.index_builds --keys 10000000\n" in would
    assert "-m bench.value_lookups --only tidemark\n" in would


def test_services_interop_runs_every_judge_that_waits_for_it() -> None:
    """A module that `make test` skips and no target names is never run."""
    would = subprocess.run(
        ["make", "-n", "services-interop"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    texts = {each.name: each.read_text() for each in (ROOT / "tests/interop").glob("test_*.py")}
    signs = ("make services-interop", "every_case", "takes_minutes")
    waiting = {name for name, text in texts.items() if any(sign in text for sign in signs)}
    assert waiting
    assert {name for name in waiting if f"tests/interop/{name}" not in would} == set()
