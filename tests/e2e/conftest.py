"""The order of this level, and which of its modules have one costly fixture for all their tests."""

from __future__ import annotations

import pytest
from xdist.remote import Producer

from tests.longest_first import Together, in_this_order

# The campaign takes as long as half of all others.
LONGEST_FIRST = (
    "test_chaos",
    "test_lives",
    "test_soak",
    "test_page_in_browser.py::test_the_page",
    "test_notebook.py::test_notebook_runs",
    "test_left_table_served",
    "test_security",
    "test_run.py::test_every_part",
    "test_run.py::test_start_again",
    "test_cannot_go_on",
    "test_recorded_table",
    "test_installed",
    "test_debezium",
    "test_demo",
)
# A running table, or an environment with the wheel.
WITH_ONE_FIXTURE = ("test_lives", "test_security", "test_cannot_go_on", "test_installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_this_order(items, LONGEST_FIRST)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log, WITH_ONE_FIXTURE) if config.getoption("dist") == "loadscope" else None
