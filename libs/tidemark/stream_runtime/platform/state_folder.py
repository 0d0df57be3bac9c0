"""`state.path`, made for its owner alone: caches, logs, addresses and tokens lie below.

The folder itself is the wall: nobody else can enter it, so nobody can plant a link or a file inside. It is
therefore looked at before anything in it is opened: it is a folder and no link, it belongs to this user, and
others may do nothing with it. A mounted one that belongs to root (volumes of containers) is taken as it is;
one that everybody can write to is warned of.
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
    """The folder cannot be trusted; names it, and says what to do."""


def prepare_state_folder(path: Path) -> None:
    """Makes the folder, or closes an existing one to others. Raises StateFolderError, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=MODE)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise StateFolderError(
                f"state.path: {path} is a link, which whoever made it can turn elsewhere: name the folder "
                f"that it leads to ({path.resolve()})"
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
            _log.info("%s was open to others (mode %04o): it is now 0700", path, mode)
        return
    if owner != _ROOT:
        raise StateFolderError(
            f"state.path: {path} belongs to another user (id {owner}), who can change all in it: run "
            "as that user, or name a folder of your own"
        )
    if mode & stat.S_IRWXO:
        _log.warning(
            "%s belongs to root and is open to everybody (mode %04o): mount it for this user or its group",
            path,
            mode,
        )


def _owner_and_mode(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_uid, stat.S_IMODE(found.st_mode)
