"""A pytest plugin for `make check`: tests run in the order in which the command line names their modules,
whatever order their level has, and once the time is over the others are skipped, and say so.

`-p tools.time_limit --for SECONDS`, from the first test of a process on: loading modules does not count. It
does count for `--until`, a moment of the monotonic clock, which all processes of a machine share: on a busy
machine loading takes most of the time.
"""

from __future__ import annotations

import math

import pytest

from tidemark.stream_runtime.clock import Clock, SystemClock

REASON = "make check has no time left for it; its level runs it"
_LIMIT = pytest.StashKey["TimeLimit"]()


class TimeLimit:
    """``seconds`` from the first question on, and no later than ``until_s`` (monotonic)."""

    def __init__(self, seconds: float, clock: Clock, until_s: float = math.inf) -> None:
        self._seconds, self._clock, self._until_s = seconds, clock, until_s
        self._started_s: float | None = None

    def is_over(self) -> bool:
        """Asked before each test."""
        now_s = self._clock.monotonic_s()
        if self._started_s is None:
            self._started_s = now_s
        return now_s - self._started_s >= self._seconds or now_s >= self._until_s


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long."""
    parser.addoption("--for", dest="for_s", type=float, required=True, help="seconds from the first test on")
    parser.addoption("--until", dest="until_s", type=float, default=math.inf, help="monotonic seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Each process has a limit of its own."""
    for_s, until_s = config.getoption("for_s"), config.getoption("until_s")
    config.stash[_LIMIT] = TimeLimit(for_s, SystemClock(), until_s)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Behind the levels' own orders."""
    modules = [config.invocation_params.dir / argument for argument in config.args]
    items.sort(key=lambda item: modules.index(item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures, which may cost more than the test."""
    if item.config.stash[_LIMIT].is_over():
        pytest.skip(REASON)
