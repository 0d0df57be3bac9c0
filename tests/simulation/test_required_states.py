"""A run of all chunks of fixed seeds fails when its worlds missed a state; one of fewer chunks does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.choose_seeds import SHOW_PLANTED_BUGS, WITNESSES, candidates, choose
from tests.simulation.reached_states import CHUNKS, FIXED_SEEDS, REACHED, REQUIRED, ReachedStates

_REPOSITORY = Path(__file__).parents[2]
_MISSED = "foreign move in an attempt"
_CHUNKS = """
import pytest

@pytest.mark.parametrize("chunk", range({chunks}))
def test_chunk(chunk, record_property):
    record_property({property!r}, dict.fromkeys({states!r}, 1))
"""


def run_of(folder: Path, chunks: int, states: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest on so many chunks that reach these states each, with the level's own hooks for that."""
    file = folder / "test_chunks.py"
    file.write_text(_CHUNKS.format(chunks=chunks, property=REACHED, states=states))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.simulation.reached_report",
        "-c",
        os.devnull,
    ]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", *arguments, str(file)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=_REPOSITORY, env=own, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_a_run_of_all_chunks_that_misses_a_state_fails_and_names_it(
    tmp_path: Path, workers: list[str]
) -> None:
    done = run_of(tmp_path, len(CHUNKS), sorted(REQUIRED - {_MISSED}), *workers)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert f"no random world reached ['{_MISSED}']" in done.stdout
    assert f"{len(CHUNKS)} passed" in done.stdout


def test_a_run_of_all_chunks_that_reaches_all_states_passes(tmp_path: Path) -> None:
    done = run_of(tmp_path, len(CHUNKS), sorted(REQUIRED))
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert f"worlds reached {len(CHUNKS):6} times: {_MISSED}" in done.stdout


def test_a_run_of_fewer_chunks_may_miss_states(tmp_path: Path) -> None:
    done = run_of(tmp_path, len(CHUNKS) - 1, [])
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "no random world reached" not in done.stdout


def test_each_required_state_is_missed_where_no_chunk_has_it() -> None:
    states = ReachedStates()
    for number in range(len(CHUNKS)):
        assert states.missing() == [], f"{number} chunks"
        states.note([(REACHED, {})])
    assert states.missing() == sorted(REQUIRED)


def test_the_chunks_are_all_fixed_seeds() -> None:
    assert tuple(seed for chunk in CHUNKS for seed in chunk) == FIXED_SEEDS
    assert len(set(FIXED_SEEDS)) == len(FIXED_SEEDS) >= 40
    assert set(FIXED_SEEDS) <= set(candidates(1_000))


def test_of_the_worlds_that_no_state_needs_the_longest_go_first() -> None:
    often, rare = frozenset({"often"}), frozenset({"often", "rare"})
    reached = {seed: rare if seed == 90 else often if seed % 2 else frozenset() for seed in range(100)}
    lengths = {seed: 10 if seed == 90 else 1 if seed == 33 else 5 for seed in reached}
    assert WITNESSES == 2
    assert choose(reached, lengths) == [33, 90]


def test_seeds_that_show_a_planted_bug_are_chosen_whatever_they_reach() -> None:
    reached = {seed: frozenset({"often"}) for seed in range(20)}
    assert choose(reached, dict.fromkeys(reached, 1), {1, 17, 19, 400}) == [1, 17, 19]
    assert set(FIXED_SEEDS) >= SHOW_PLANTED_BUGS


def test_no_state_is_lost_by_choosing() -> None:
    reached = {
        seed: frozenset(f"state {n}" for n in range(40) if seed % (n + 2) == 0) for seed in range(1, 400)
    }
    chosen = choose(reached, {seed: seed % 7 for seed in reached})
    assert len(chosen) < 100
    for n in range(40):
        of_all = sum(f"state {n}" in states for states in reached.values())
        assert sum(f"state {n}" in reached[seed] for seed in chosen) >= min(of_all, WITNESSES)
