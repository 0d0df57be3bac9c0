"""The order of this level: what takes longest begins first, so that no core is idle at the end."""

from __future__ import annotations

import pytest

# By what a name contains; the rest comes behind. The campaign takes as long as half of all others.
LONGEST_FIRST = (
    "test_chaos",
    "test_run.py::test_every_part",
    "test_page_in_browser.py::test_the_page",
    "test_notebook.py::test_notebook_runs",
    "test_security",
    "test_run.py::test_paused",
    "test_run.py::test_killed",
    "test_run.py::test_lost",
    "test_run.py::test_start_again",
    "test_cannot_go_on",
    "test_debezium",
    "test_demo",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every process sorts alike; tests of one module that share a table keep their order."""

    def place(item: pytest.Item) -> int:
        return next((n for n, part in enumerate(LONGEST_FIRST) if part in item.nodeid), len(LONGEST_FIRST))

    items.sort(key=place)
