"""Creates and checks `state.path`, the folder of caches, logs, addresses and tokens.

Only its owner may enter the folder, so no other user can put a link or a file into it. It is checked before
anything in it is opened:

- It must be a folder and not a symbolic link, and belong to this user. Permissions of others are taken away.
- A folder of root (a mounted volume of a container) is accepted as it is. If its permissions are open to all
  users, the log has a warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.platform.errors import PlatformError

MODE: Final = 0o700
_ROOT: Final = 0
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_log = logging.getLogger("tidemark.state")


class StateFolderError(PlatformError):
    """The folder cannot be trusted. The text names it and says what to do."""


def prepare_state_folder(path: Path) -> None:
    """Creates the folder, or takes other users' permissions away from an existing one. Raises
    StateFolderError, OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=MODE)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise StateFolderError(
                f"state.path: {path} is a link, which its owner could let lead to another folder: name the "
                f"folder that it leads to ({path.resolve()})"
            ) from None
        raise error from None
    try:
        _close_to_others(handle, path)
    finally:
        os.close(handle)


def _close_to_others(handle: int, path: Path) -> None:
    owner, mode = _owner_and_mode(handle)
    if owner == os.geteuid():
        if mode & _OTHERS:
            os.fchmod(handle, MODE)
            _log.info("%s was open to other users (mode %04o): it has mode 0700 now", path, mode)
        return
    if owner != _ROOT:
        raise StateFolderError(
            f"state.path: {path} belongs to another user (id {owner}), who can change everything in it: run "
            "as that user, or name a folder of your own"
        )
    if mode & stat.S_IRWXO:
        _log.warning(
            "%s belongs to root and is open to all users (mode %04o): mount it for this user or its group",
            path,
            mode,
        )


def _owner_and_mode(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_uid, stat.S_IMODE(status.st_mode)
