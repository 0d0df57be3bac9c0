"""Allows one `tidemark run` per state folder, by a file lock that the kernel releases when its holder
dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidemark.console.errors import WRONG_USE, CliError
from tidemark.stream_runtime.platform.state_folder import prepare_state_folder

LOCK_NAME: Final = "run.lock"


@contextmanager
def state_lock(state: Path, purpose: str) -> Iterator[None]:
    """Holds the state folder for the time of the block; a missing folder is made. `purpose` is what another
    process is told. Raises CliError when another process holds the folder, StateFolderError when the folder
    cannot be trusted.
    """
    try:
        prepare_state_folder(state)
        handle = (state / LOCK_NAME).open("a+")
    except OSError as error:
        raise CliError(
            f"{error.filename or state}: {error.strerror}: state.path must be a folder that this user can "
            "write to",
            WRONG_USE,
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            raise CliError(
                f"{state} is in use by process {holder}: stop it first, or give this table a state.path of "
                "its own"
            ) from None
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()} ({purpose})\n")
        handle.flush()
        yield
