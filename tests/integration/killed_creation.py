"""`tidemark table create` in processes that kill themselves by SIGKILL before their nth change of the file
system, each followed by the same command once more. Forked, so that Python and its packages are loaded once.

Before a file is synced or opened for reading nobody need be killed: a process that dies there leaves what it
leaves before its next change.

    python -m tests.integration.killed_creation FOLDER

Prints a JSON object for each: whether the killed one was done but for its end, the exit code of the second,
and the files of the table, with every instant as `T`. The first line is of a creation that nobody killed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.opening.table_creation import CREATION
from tidemark.hudi_format.storage import local, new_files
from tidemark.hudi_format.table_config import PROPERTIES_PATH

_CHANGES: Final = frozenset({"write", "link", "rename", "unlink", "mkdir", "utime"})
_INSTANT: Final = re.compile(r"\d{17}")
_MOMENTS_MAX: Final = 1_000


class _Dying:
    """The `os` of a process that is killed before its nth change."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(os, name)
        return self._counted(call) if name in _CHANGES else call

    def open(self, path: str, flags: int, *arguments: Any, **named: Any) -> int:
        """A change where the file is made."""
        opens = self._counted(os.open) if flags & os.O_CREAT else os.open
        return int(opens(path, flags, *arguments, **named))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def work(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return work


def create(folder: Path) -> int:
    """The exit code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(["table", "create", "-c", str(folder / "orders.yaml")])


def is_killed(folder: Path, nth: int) -> bool:
    """Whether the process died; it ends by itself when it makes fewer changes."""
    process = os.fork()
    if process == 0:
        local.os = new_files.os = _Dying(nth)  # type: ignore[attr-defined,assignment]
        os._exit(create(folder))
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def told(folder: Path, code: int, whole: bool = False) -> str:
    table = folder / "table"
    files = sorted(
        _INSTANT.sub("T", str(each.relative_to(table))) for each in table.rglob("*") if each.is_file()
    )
    return json.dumps({"code": code, "whole": whole, "files": files}) + "\n"


def run(place: Path) -> None:
    """See the module."""
    for nth in range(_MOMENTS_MAX):
        folder = place / str(nth)
        folder.mkdir()
        write_config(folder)
        if nth == 0:
            sys.stdout.write(told(folder, create(folder)))
            sys.stdout.flush()
            continue
        if not is_killed(folder, nth):
            return
        whole = (folder / "table" / PROPERTIES_PATH).exists() and not (folder / "table" / CREATION).exists()
        sys.stdout.write(told(folder, create(folder), whole))
        sys.stdout.flush()
    raise AssertionError(f"a creation makes more than {_MOMENTS_MAX} changes")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
