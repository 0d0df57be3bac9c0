"""Failpoints: armed by the environment, exact in their count, real in their effect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import pytest

from tidemark.stream_runtime.failpoint import (
    EXIT_CODE,
    FailpointAction,
    FailpointConfigError,
    FailpointHitError,
    FailpointRegistry,
)


class Place(StrEnum):
    BEFORE = "before-commit"
    AFTER = "after-commit"


SCRIPT = """
import os, sys
from enum import StrEnum
from tidemark.stream_runtime.failpoint import FailpointRegistry
class Place(StrEnum):
    HERE = "here"
registry = FailpointRegistry.from_environment(Place, os.environ)
print("before", flush=True)
registry.hit(Place.HERE)
print("between", flush=True)
registry.hit(Place.HERE)
print("after", flush=True)
"""
LIBS = str(Path(__file__).parents[3] / "libs")


def spawn(order: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TIDEMARK_FAILPOINT": order, "PYTHONPATH": LIBS}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_unarmed_places_pass():
    registry = FailpointRegistry.from_environment(Place, {})
    for place in Place:
        registry.hit(place)


def test_raise_acts_once_at_its_count_and_place_only():
    registry = FailpointRegistry.from_environment(Place, {"TIDEMARK_FAILPOINT": "after-commit:3:raise"})
    for _ in range(2):
        registry.hit(Place.AFTER)
        registry.hit(Place.BEFORE)
    with pytest.raises(FailpointHitError, match="after-commit"):
        registry.hit(Place.AFTER)
    registry.hit(Place.AFTER)


def test_several_orders_and_other_services_names():
    registry = FailpointRegistry.from_environment(
        Place,
        {"TIDEMARK_FAILPOINT": "before-commit:raise,elsewhere:2:exit,after-commit:2:raise"},
        foreign=frozenset({"elsewhere"}),
    )
    with pytest.raises(FailpointHitError):
        registry.hit(Place.BEFORE)
    registry.hit(Place.AFTER)
    with pytest.raises(FailpointHitError):
        registry.hit(Place.AFTER)


def test_injected_effects_take_the_place_of_the_real_ones():
    seen: list[str] = []
    registry = FailpointRegistry(Place, lambda: seen.append("exit"), lambda: seen.append("stop"))
    registry.arm(Place.BEFORE, action=FailpointAction.EXIT)
    registry.arm(Place.AFTER, action=FailpointAction.STOP)
    registry.hit(Place.BEFORE)
    registry.hit(Place.AFTER)
    assert seen == ["exit", "stop"]


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("nowhere", "no failpoint 'nowhere'; known: before-commit, after-commit"),
        ("before-commit:often", "'often' is neither"),
        ("before-commit:0:raise", "counted from 1"),
    ],
)
def test_wrong_order_is_refused(order, says):
    with pytest.raises(FailpointConfigError) as refused:
        FailpointRegistry.from_environment(Place, {"TIDEMARK_FAILPOINT": order})
    assert says in str(refused.value)


def test_exit_ends_the_process_at_once_with_its_code():
    process = spawn("here:2")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == EXIT_CODE
    assert output.split() == ["before", "between"]


def test_stop_freezes_the_process_until_it_is_woken():
    process = spawn("here:1:stop")
    assert process.stdout is not None
    assert process.stdout.readline() == "before\n"
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=300)
    assert output.split() == ["between", "after"]
