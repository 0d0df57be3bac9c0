"""What a run of all chunks of fixed seeds says of the states that their worlds reached, as hooks of pytest.

`conftest` takes them in; a run of pytest has them alone with `-p` and the name of this module, which imports
nothing of the product.
"""

from __future__ import annotations

import pytest

from tests.simulation.reached_states import ReachedStates

_STATES = ReachedStates()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _STATES.note(report.user_properties)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _STATES.missing() and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for state, count in sorted(_STATES.counts.items()):
        terminalreporter.write_line(f"worlds reached {count:6} times: {state}")
    if missing := _STATES.missing():
        terminalreporter.write_line(f"FAILED: no random world reached {missing}", red=True)
