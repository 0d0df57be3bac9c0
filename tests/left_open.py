"""What a module's tests leave open fails that module, never another one.

Python tells of a file, a socket or a process that was not closed when its object is collected, and what is
raised there can only be printed: pytest makes an error of either, of the test that runs just then. An object
in a cycle of references is collected at some later time, in a test that has nothing to do with it. So behind
the last test of each module its threads have to end, all that came since its first test is collected, and
what shows up fails the teardown of that last test.

Files in the folders for temporary files that are open still are named as well: RocksDB opens its own, and of
a bare descriptor Python knows nothing.

In a module that has the mark `spark`, on all its tests or on one, nothing fails, and it is listed at the end
of the run: py4j leaves the process of its gateway, the sockets to it and the threads behind them to the end
of Python. A module without the mark is judged in the same process too: what was there before is not its own.

What was there before the module is not looked at (`gc.freeze`): so collecting takes milliseconds, though
hundreds of modules are loaded.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

THREADS_END_S = 120.0
"""A thread that was told to end may take so long on a slow machine."""
_FOLDERS = (f"{tempfile.gettempdir()}/", "/dev/shm/")
_LISTED = ("default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning")
_OF_A_FAILURE = ("last_exc", "last_type", "last_value", "last_traceback")


class LeftOpen:
    """Of one process: what there was when the module of the running test began."""

    def __init__(self) -> None:
        self._module: Path | None = None
        self._threads: set[threading.Thread] = set()
        self._files: frozenset[str] = frozenset()

    def begin(self, module: Path) -> None:
        """Before each test; only a module's first one counts."""
        if module == self._module:
            return
        self._module = module
        self._threads, self._files = set(threading.enumerate()), _open_files()
        gc.freeze()

    def end(self) -> list[str]:
        """Behind a module's last test: collects, and returns what is there still, for people."""
        # First, since a pool's threads may end just because nobody has the pool any more.
        gc.collect()
        threads = [each for each in threading.enumerate() if each not in self._threads]
        running = _still_running(threads)
        if threads:
            gc.collect()
        gc.unfreeze()
        self._module = None
        opened = _open_files() - self._files
        return [
            *(f"the thread {each.name!r} runs on" for each in running),
            *(f"the file {name} is open" for name in sorted(opened)),
        ]


@contextmanager
def _raised_unseen() -> Iterator[list[str]]:
    """What is raised where nobody can catch it: in finalizers, on whichever thread."""
    found: list[str] = []
    # As text at once: the hook may not keep the objects alive.
    before, sys.unraisablehook = (
        sys.unraisablehook,
        lambda raised: found.append(f"{raised.exc_value!r}, raised in {raised.object!r}"),
    )
    try:
        yield found
    finally:
        sys.unraisablehook = before


def _still_running(threads: list[threading.Thread]) -> list[threading.Thread]:
    """Those that have not ended in time. A thread that C code began is C code's, and cannot be waited for."""
    ours = [each for each in threads if not each.name.startswith("Dummy-")]
    until = time.monotonic() + THREADS_END_S
    for each in ours:
        each.join(max(0.0, until - time.monotonic()))
    return [each for each in ours if each.is_alive()]


def _open_files() -> frozenset[str]:
    """Paths of open files in the folders for temporary files."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the listing's own
    return frozenset(name for name in found if name.startswith(_FOLDERS))


_LEFT_OPEN = LeftOpen()
_WITH_SPARK = pytest.StashKey[bool]()


def _has_spark(item: pytest.Item) -> bool:
    return item.stash[_WITH_SPARK]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is listed is no error. First: a module has Spark also where its marked tests are left out."""
    with_spark = {item.path for item in items if item.get_closest_marker("spark") is not None}
    for item in items:
        item.stash[_WITH_SPARK] = item.path in with_spark
        if item.path in with_spark:
            for listed in _LISTED:
                item.add_marker(pytest.mark.filterwarnings(listed), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures."""
    if not _has_spark(item):
        _LEFT_OPEN.begin(item.path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Around all other teardowns of a module's last test."""
    if _has_spark(item) or (nextitem is not None and nextitem.path == item.path):
        return (yield)
    with _raised_unseen() as raised:
        try:
            result = yield
        finally:
            # Pytest keeps both a little longer: the fixtures' values, and the frames of a test that failed.
            getattr(item, "funcargs", {}).clear()
            for name in _OF_A_FAILURE:
                vars(sys).pop(name, None)
            left = _LEFT_OPEN.end()
    if raised or left:
        pytest.fail(f"{item.path.name} leaves open: " + "; ".join([*raised, *left]), pytrace=False)
    return result
