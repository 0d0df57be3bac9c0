"""One service that has to run: started, started again when it ends, killed, frozen, armed with failpoints."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, EXIT_CODE
from tidemark.stream_runtime.platform import child

_AGAIN_S: Final = 0.3
_LOG_TAIL: Final = 8_000
_LINES_SHOWN: Final = 20
_STACKS_S: Final = 20.0
# The interpreter writes the stacks of its threads when it gets SIGABRT.
_STACKS_AT_ABORT: Final = {"PYTHONFAULTHANDLER": "1"}
_OUR_CODE: Final = "/tidemark/"


@dataclass
class Exit:
    """How a process ended, and what it had been armed with."""

    code: int
    armed: str
    said: str


@dataclass
class Seat:
    """`config` makes the configuration file of the next start; `role` is the command's name, `command` a
    module with arguments that is run in its place.

    Starts happen in `tend`, so in the one thread that calls it.
    """

    name: str
    role: str
    folder: Path
    config: Callable[[], Path]
    process: subprocess.Popen[bytes] | None = None
    exits: list[Exit] = field(default_factory=list)
    arms: deque[str] = field(default_factory=deque)
    environment: dict[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    down: bool = False
    starts: int = 0
    _armed: str = ""
    _start_at_s: float = 0.0

    def __post_init__(self) -> None:
        self.command = self.command or ("tidemark.cli.entry", self.role)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def log_size(self) -> int:
        """In bytes; 0: it has none yet."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, size: int) -> str:
        """What was written after it had that size."""
        return self.log.read_bytes()[size:].decode(errors="replace")

    def tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL:].decode(errors="replace") if self.log.exists() else ""

    def now(self) -> str:
        """Whether it runs, how often it was started, and the last lines of its log."""
        state = "stopped" if self.is_stopped() else "running" if self.pid() is not None else "not running"
        lines = self.tail().splitlines()[-_LINES_SHOWN:]
        return "\n    ".join(
            [f"{self.name} ({state}, start {self.starts}):", *(each[:400] for each in lines)]
        )

    def stacks(self) -> str:
        """Where each thread is that runs our code. It ends the process: for the end of a failed round."""
        process, before = self.process, self.log_size()
        if process is None or process.poll() is not None:
            return f"{self.name} does not run"
        self.down = True
        self.thaw()
        os.kill(process.pid, signal.SIGABRT)
        child.wait_for_exit(process, SystemClock(), _STACKS_S)
        threads = self.log_since(before).split("\n\n")
        return "\n".join([f"threads of {self.name}:", *(each for each in threads if _OUR_CODE in each)])

    def tend(self) -> None:
        """Notices an end, and starts what should run."""
        if self.process is not None and self.process.poll() is not None:
            said = self.tail().strip().splitlines()
            code = int(self.process.returncode)
            self.exits.append(Exit(code, self._armed, said[-1] if said else ""))
            if self._armed and code != EXIT_CODE and ":stop" not in self._armed:
                # It ended before it came to its failpoint: the next life is to die there.
                self.arms.appendleft(self._armed)
            self.process = None
            self._start_at_s = time.monotonic() + _AGAIN_S
        if self.process is None and not self.down and time.monotonic() >= self._start_at_s:
            self._start()

    def pid(self) -> int | None:
        # Asked by the memory watch as well, while `tend` may put another process (or none) in its place.
        process = self.process
        return process.pid if process is not None and process.poll() is None else None

    def family(self) -> list[psutil.Process]:
        """The process and all below it."""
        pid = self.pid()
        if pid is None:
            return []
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(pid)
            return [top, *top.children(recursive=True)]
        return []

    def kill(self) -> None:
        """SIGKILL to the service itself; what it started has to end by itself."""
        if self.process is not None:
            child.kill(self.process, SystemClock())

    def freeze(self) -> None:
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGCONT)

    def is_stopped(self) -> bool:
        """Whether it is frozen (by a failpoint, or by us)."""
        pid = self.pid()
        with contextlib.suppress(psutil.Error):
            return pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED
        return False

    def end(self, grace_s: float) -> int:
        """SIGTERM; returns the exit code. It is not started again. One that does not end in time gets
        SIGABRT, so that its log says where each thread is.
        """
        self.down = True
        if self.process is None:
            return 0
        self.thaw()
        self.process.terminate()
        if not child.wait_for_exit(self.process, SystemClock(), grace_s):
            self.process.send_signal(signal.SIGABRT)
            child.wait_for_exit(self.process, SystemClock(), _STACKS_S)
        code = child.kill(self.process, SystemClock())
        self.process = None
        return code

    def kill_all(self) -> None:
        """For the end of a failed round: the process and everything below it."""
        self.down = True
        for each in reversed(self.family()):
            with contextlib.suppress(psutil.Error):
                each.kill()
        if self.process is not None:
            child.kill(self.process, SystemClock())
            self.process = None

    def _start(self) -> None:
        self._armed = self.arms.popleft() if self.arms else ""
        environment: Mapping[str, str] = {**os.environ, **_STACKS_AT_ABORT, **self.environment}
        if self._armed:
            environment = {**environment, ENVIRONMENT_VARIABLE: self._armed}
        command = [sys.executable, "-m", *self.command, "-c", str(self.config())]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            log.write(f"--- start {self.starts}, armed with {self._armed or 'nothing'}\n")
        self.process = child.spawn(command, self.log, environment=environment)
        self.starts += 1
