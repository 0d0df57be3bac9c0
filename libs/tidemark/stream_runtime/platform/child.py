"""Starts and ends child processes, so that no child lives longer than its parent.

A child gets a session of its own. So Ctrl-C reaches only the parent, which then stops its children in order.
On Linux the kernel kills the child when its parent dies, in whatever way. On other systems only a parent that
ends in order ends its children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.platform.errors import PlatformError

_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.02
_KILL_WAIT_S: Final = 10.0

# This program runs in the child and then becomes the command (exec), which keeps the process id. A preexec_fn
# would run Python between fork and exec of a process that has threads. If the parent died before prctl took
# effect, the child has another parent id and ends.
_LEASH: Final = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def end_with_parent() -> None:
    """Called by a child: on Linux the kernel kills it when the *thread* that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def spawn(
    command: Sequence[str],
    console: Path,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts `command`, whose first part is an absolute path, and appends its output to `console`.

    On Linux the child ends with the *thread* that called this function, so a service calls it from a thread
    that lives as long as the service. Raises PlatformError if the command cannot be executed.
    """
    if not os.access(command[0], os.X_OK):
        raise PlatformError(f"{command[0]} does not exist, or is not executable")
    leashed = list(command)
    if sys.platform == "linux":
        leashed = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
    with console.open("ab") as output:
        return subprocess.Popen(
            leashed,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment) if environment is not None else None,
            cwd=folder,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], clock: Clock, grace_s: float) -> int:
    """Ends the process by SIGTERM, or by SIGKILL if it still runs after `grace_s`. Returns the exit code.
    Raises PlatformError. Repeatable.
    """
    if process.poll() is None:
        process.terminate()
        wait_for_exit(process, clock, grace_s)
    return kill(process, clock)


def kill(process: subprocess.Popen[bytes], clock: Clock) -> int:
    """Ends the process by SIGKILL and waits. Returns the exit code. Raises PlatformError if it still runs."""
    if process.poll() is None:
        process.kill()
        if not wait_for_exit(process, clock, _KILL_WAIT_S):
            raise PlatformError(f"process {process.pid} did not end within {_KILL_WAIT_S:.0f} s of SIGKILL")
    return int(process.returncode)


def wait_for_exit(process: subprocess.Popen[bytes], clock: Clock, timeout_s: float) -> bool:
    """Waits until the process has ended. False if it still runs after `timeout_s`."""
    deadline_s = clock.monotonic_s() + timeout_s
    while process.poll() is None:
        if clock.monotonic_s() >= deadline_s:
            return False
        clock.sleep(_POLL_S)
    return True
