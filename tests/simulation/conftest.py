"""Simulated tables lie in memory where the system has such a folder: syncing is not what is tried here. What
takes longest begins first, so that both processes have something to do to the end.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer

from tests.longest_first import Together, in_this_order
from tests.simulation.commit_path import CommitPath
from tests.simulation.configured_path import config_of
from tests.simulation.reached_report import (  # noqa: F401
    pytest_runtest_logreport,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from tidemark.config import TableConfigFile
from tidemark.hudi_format.table_config import TableType

WITH_KEPT_OUTCOMES = ("test_world_with_services",)
"""Modules whose tests share worlds that one of them ran: in two processes each would run them again."""
LONGEST_FIRST = (
    "test_world_with_services.py",
    "test_worlds_with_partitioned_index.py",
    "test_cut_anywhere.py",
    "test_lost_lock.py::test_a_coordinator_frozen",
    "test_older_events.py::test_whatever_is_forgotten",
    "test_world.py",
    "test_worlds_of_objects.py::test_a_world",
    "test_random_faults.py",
)
_MEMORY = Path("/dev/shm")

# Worlds make many objects and few circles of them: to look for those as often as usual takes a twelfth of
# the time.
gc.set_threshold(50_000, 10, 10)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="tidemark-", dir=_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def path(tmp_path: Path) -> CommitPath:
    return CommitPath(tmp_path / "table", TableType.MERGE_ON_READ, ordered=True)


@pytest.fixture
def config(tmp_path: Path, path: CommitPath) -> TableConfigFile:
    """Of the table of `path`, which a module may make otherwise."""
    return config_of(path, tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_this_order(items, LONGEST_FIRST)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log, WITH_KEPT_OUTCOMES) if config.getoption("dist") == "loadscope" else None
