"""The folder of the Spark driver's temporary files: unpacked libraries, blocks, its settings.

A killed driver leaves its files behind, so a new driver empties the folder, but not while another driver uses
it. A file lock tells: every driver that uses the folder has a share of the lock, and only a driver that gets
the whole lock empties the folder. The kernel releases the share of a process that died.
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
    """The folder, created or emptied; its files stay if another process uses it. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as lock:
        try:
            _empty_if_unused(folder, lock)
        except OSError as error:
            _log.warning("%s cannot be locked (%s): the files of killed writers stay there", lock.name, error)
        folder.mkdir(exist_ok=True)
        yield folder


def _empty_if_unused(folder: Path, lock: TextIO) -> None:
    """Empties the folder if no process uses it, and takes a share of the lock. Raises OSError if the file
    system has no such locks.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.warning("another writer of this machine uses %s: the files of killed writers stay there", folder)
    else:
        # Files that cannot be removed cost nothing but space.
        shutil.rmtree(folder, ignore_errors=True)
    # Waits only for a process that empties the folder now.
    fcntl.flock(lock, fcntl.LOCK_SH)
