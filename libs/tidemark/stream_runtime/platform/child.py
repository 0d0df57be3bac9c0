"""Starts and ends child processes so that none outlives its parent.

A child gets a session of its own, so Ctrl-C reaches the parent alone, which then stops its children in
order. On Linux the kernel kills the child when its parent dies, however that happens; elsewhere only an
orderly end of the parent ends its children.
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

# Runs in the child, then becomes the command, which keeps the process id. Not a preexec_fn: that would run
# Python between fork and exec of a process that has threads. A parent that died before prctl took effect
# shows as another parent id.
_LEASH: Final = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def end_with_parent() -> None:
    """For a child itself: on Linux the kernel ends it when the *thread* that started it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def spawn(
    command: Sequence[str],
    console: Path,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts `command` (an absolute path first) with its output appended to `console`.

    The child ends with the *thread* that called this, so a service calls it from a thread that lives as
    long as itself. Raises PlatformError when the command does not exist.
    """
    if not os.access(command[0], os.X_OK):
        raise PlatformError(f"{command[0]} is no executable")
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
    """Asks by SIGTERM, insists by SIGKILL after `grace_s`; returns the exit code. Repeatable."""
    if process.poll() is None:
        process.terminate()
        wait_for_exit(process, clock, grace_s)
    return kill(process, clock)


def kill(process: subprocess.Popen[bytes], clock: Clock) -> int:
    """SIGKILL and wait; returns the exit code. Raises PlatformError when even that does not end it."""
    if process.poll() is None:
        process.kill()
        if not wait_for_exit(process, clock, _KILL_WAIT_S):
            raise PlatformError(f"process {process.pid} did not end within {_KILL_WAIT_S:.0f} s of SIGKILL")
    return int(process.returncode)


def wait_for_exit(process: subprocess.Popen[bytes], clock: Clock, timeout_s: float) -> bool:
    """True as soon as the process has ended, False when the time is over first."""
    deadline_s = clock.monotonic_s() + timeout_s
    while process.poll() is None:
        if clock.monotonic_s() >= deadline_s:
            return False
        clock.sleep(_POLL_S)
    return True
