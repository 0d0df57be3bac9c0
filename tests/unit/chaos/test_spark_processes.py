"""Which processes of a writer's family are Spark's, while some of them end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.chaos.faults import spark_processes


@pytest.fixture
def python() -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.communicate(b"\n", timeout=60.0)


def ended() -> psutil.Process:
    """A process that was found, and is gone when it is asked for its name."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = psutil.Process(process.pid)
    process.communicate(b"\n", timeout=60.0)
    return found


def test_a_process_that_has_just_ended_is_none_of_sparks(python: psutil.Process) -> None:
    family = [psutil.Process(), ended(), python]
    assert spark_processes(family, "workers") == [python]
    assert spark_processes(family, "jvm") == []


def test_a_writer_that_does_not_run_has_no_spark() -> None:
    assert spark_processes([], "workers") == []
