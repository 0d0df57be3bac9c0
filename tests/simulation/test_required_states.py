"""A run of all chunks of fixed seeds fails when its worlds missed a state; one of fewer chunks does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.reached_states import CHUNK, CHUNKS, REACHED, REQUIRED, SEEDS, ReachedStates

_REPOSITORY = Path(__file__).parents[2]
_MISSED = "foreign move in an attempt"
_CHUNKS = """
import pytest

@pytest.mark.parametrize("chunk", range({chunks}))
def test_chunk(chunk, record_property):
    record_property({property!r}, dict.fromkeys({states!r}, 1))
"""


def run_of(folder: Path, chunks: int, states: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest on so many chunks that reach these states each, with the level's own hooks."""
    file = folder / "test_chunks.py"
    file.write_text(_CHUNKS.format(chunks=chunks, property=REACHED, states=states))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.simulation.conftest", "-c", os.devnull]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", *arguments, str(file)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=_REPOSITORY, env=own, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_a_run_of_all_chunks_that_misses_a_state_fails_and_names_it(
    tmp_path: Path, workers: list[str]
) -> None:
    done = run_of(tmp_path, CHUNKS, sorted(REQUIRED - {_MISSED}), *workers)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert f"no random world reached ['{_MISSED}']" in done.stdout
    assert f"{CHUNKS} passed" in done.stdout


def test_a_run_of_all_chunks_that_reaches_all_states_passes(tmp_path: Path) -> None:
    done = run_of(tmp_path, CHUNKS, sorted(REQUIRED))
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert f"worlds reached {CHUNKS:6} times: {_MISSED}" in done.stdout


def test_a_run_of_fewer_chunks_may_miss_states(tmp_path: Path) -> None:
    done = run_of(tmp_path, CHUNKS - 1, [])
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "no random world reached" not in done.stdout


def test_each_required_state_is_missed_where_no_chunk_has_it() -> None:
    states = ReachedStates()
    for number in range(CHUNKS):
        assert states.missing() == [], f"{number} chunks"
        states.note([(REACHED, {})])
    assert states.missing() == sorted(REQUIRED)


def test_the_chunks_are_all_fixed_seeds() -> None:
    assert CHUNK * CHUNKS == SEEDS
