"""The folder for what Spark's driver keeps while it lives: unpacked libraries, blocks, its settings.

A killed driver leaves all of it behind, so the next one begins with an empty folder; but never under another
that still lives, which a lock tells that the kernel lets go of when its holder dies. Whoever uses the folder
shares the lock; only who finds nobody there empties it.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_log = logging.getLogger("tidemark.writer")


@contextmanager
def own_scratch(folder: Path) -> Iterator[Path]:
    """The folder, made or emptied; what is in it stays while another process has it. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as lock:
        try:
            _empty_if_unused(folder, lock)
        except OSError as error:
            _log.warning("%s cannot be locked (%s): what killed writers left there stays", lock.name, error)
        folder.mkdir(exist_ok=True)
        yield folder


def _empty_if_unused(folder: Path, lock: TextIO) -> None:
    """Has a share of the lock afterwards. Raises OSError where a file system knows no such locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.warning("another writer of this machine uses %s: what a killed one left there stays", folder)
    else:
        # What cannot be removed costs space, and nothing else.
        shutil.rmtree(folder, ignore_errors=True)
    # Waits for nobody but one that is emptying the folder now.
    fcntl.flock(lock, fcntl.LOCK_SH)
