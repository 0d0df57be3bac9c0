"""Fixtures of every level: a Java, and one real broker per session."""

from __future__ import annotations

import gc
import logging

# Loaded now: pytest's report of an exception on a thread needs it, also when no file can be opened any more.
import tracemalloc  # noqa: F401
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.commit_seed import seed_of_commit
from tests.left_open import (  # noqa: F401
    pytest_collection_modifyitems,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)
from tests.own_ports import with_own_ports
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime, find_java
from tidemark.stream_runtime.platform.open_files import allow_open_files

# A busy machine is no failure: tests have limits of time where something could hang, never speeds.
settings.register_profile("tidemark", deadline=None)
settings.load_profile("tidemark")

# As the command line does: services on threads share one process here, with all their clients.
allow_open_files()
use_arrow_alone()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Property tests draw by the commit, too, unless `--hypothesis-seed` is given."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(seed_of_commit("properties"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Importing and collecting make hundreds of thousands of objects, nearly all to stay: looking for garbage
    among them again and again takes a third of that time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Commands that tests run in this process configure the log; the next test finds it as it was before."""
    log = logging.getLogger("tidemark")
    before = (log.handlers, log.level, log.propagate)
    yield
    log.handlers, log.level, log.propagate = before


@pytest.fixture(scope="session")
def java() -> JavaRuntime:
    """The Java that Tidemark itself would choose."""
    return find_java()


@pytest.fixture(scope="session")
def kafka(java: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker for the whole session. Tests share it: give topics and groups names of your own.

    A test that kills or restarts a broker starts its own `EmbeddedKafka`.
    """
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(with_own_ports(folder), ensure_jars(KAFKA.name, java), java.home) as broker:
        yield broker
