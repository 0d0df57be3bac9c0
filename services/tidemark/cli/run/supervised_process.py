"""One child process that is started again when it ends, after growing pauses.

A life is short if it took less than `_SETTLED_S`. How the process ended decides whether it is started again:

- Killed, or code 1 (a defect, or something that trying again may cure): always, after longer and longer
  pauses. From the `FAILING_FROM`th short life in a row on `failing` says why.
- Code 2 (it cannot work as configured) before its first long life: never. `stopped` says why.
- Code 2 later, code 4 (stored data contradicts itself or is gone) or code 5 (its port is taken, perhaps by a
  process that is just ending): until the `_REFUSALS_MAX`th short life in a row. Then `stopped` says why.
- Code 3 (another coordinator took the table): once. If it ends with code 3 again after a short life, another
  process serves the table, and `step` raises ReplacedError.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tidemark.cli.run.console_log import ConsoleLog
from tidemark.console.errors import ADDRESS_TAKEN, STOPPED, SUPERSEDED, WRONG_USE, CliError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.platform import child

_WAIT_MIN_S: Final = 0.25
_WAIT_MAX_S: Final = 10.0
_WAIT_LATE_S: Final = 60.0
_LATE_FROM: Final = 20
_SETTLED_S: Final = 30.0
_SUPERSEDED_MAX: Final = 2
_REFUSALS_MAX: Final = 3
_REFUSED_WAITS_S: Final = (0.5, 2.0)
FAILING_FROM: Final = 5
NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})


class ServiceStoppedError(CliError):
    """A service ended, and starting it again would not help; the text is the service's own error."""

    def __init__(self, role: str, message: str, exit_code: int) -> None:
        super().__init__(f"{role}: {message}", exit_code)


class ReplacedError(CliError):
    """Another process serves the table. Two coordinators that go on taking it from each other commit
    nothing.
    """

    def __init__(self, role: str) -> None:
        super().__init__(
            f"{role}: another coordinator took the table {_SUPERSEDED_MAX} times in a row: another "
            "`tidemark run` or `tidemark coordinator` serves it; stop that one first",
            SUPERSEDED,
        )


class Backoff:
    """How long to wait before the next start. After a long life there is no pause: everybody waits for the
    service. From then on it doubles with each short life.
    """

    def __init__(self) -> None:
        self._failures = 0

    def wait_s(self, lived_s: float) -> float:
        """The seconds to wait after a process that ran for `lived_s` seconds."""
        if lived_s >= _SETTLED_S:
            self._failures = 1
            return 0.0
        self._failures += 1
        if self._failures >= _LATE_FROM:
            return _WAIT_LATE_S
        return float(min(_WAIT_MAX_S, _WAIT_MIN_S * 2 ** min(self._failures - 1, 16)))

    @property
    def failures(self) -> int:
        """Short lives in a row."""
        return self._failures


class SupervisedProcess:
    """One child process and its restarts. Call `step` often, always from the same thread: when that thread
    ends the child is killed.
    """

    def __init__(
        self,
        role: str,
        command: Sequence[str],
        console: ConsoleLog,
        clock: Clock,
        say: Callable[[str], None],
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        """`environment` adds variables to those of this process, and replaces them."""
        self.role = role
        self.starts = 0
        self.stopped: str | None = None
        self.stopped_code = 0
        self._failing: str | None = None
        self._refusals = 0
        self._command = list(command)
        self._environment = dict(environment)
        self._console = console
        self._clock = clock
        self._say = say
        self._backoff = Backoff()
        self._superseded = 0
        self._settled = False
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._start_at_s = 0.0

    @property
    def pids(self) -> list[int]:
        """The id of the process; empty while it does not run."""
        running = self._process is not None and self._process.poll() is None
        return [self._process.pid] if running and self._process is not None else []

    @property
    def failing(self) -> str | None:
        """Why the process dies again and again; None while it does not."""
        is_settled = self._process is not None and self._clock.monotonic_s() - self._started_s >= _SETTLED_S
        return None if is_settled else self._failing

    @property
    def has_settled(self) -> bool:
        """Whether the process had a long life."""
        return self._settled

    def step(self) -> None:
        """Starts the process if it is time, and notices its end. Raises ReplacedError."""
        self._console.poll()
        if self.stopped is not None:
            return
        now_s = self._clock.monotonic_s()
        if self._process is None:
            if now_s >= self._start_at_s:
                self._start(now_s)
        elif self._process.poll() is not None:
            self._ended(int(self._process.returncode), now_s)

    def restart(self) -> None:
        """Kills the process; the next `step` starts it again."""
        if self._process is not None:
            child.kill(self._process, self._clock)
            self._process, self._start_at_s = None, 0.0

    def stop(self, grace_s: float) -> None:
        """Sends SIGTERM, and SIGKILL after `grace_s` seconds. Repeatable."""
        if self._process is not None:
            child.end(self._process, self._clock, grace_s)
            self._process = None
        self._console.poll()

    def _start(self, now_s: float) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self._environment}
        self._process = child.spawn(self._command, self._console.path, environment=environment)
        self._started_s = now_s
        self.starts += 1

    def _ended(self, code: int, now_s: float) -> None:
        self._process = None
        self._console.poll()
        lived_s = now_s - self._started_s
        self._settled |= lived_s >= _SETTLED_S
        self._count_superseded(code, lived_s)
        wait_s = self._backoff.wait_s(lived_s)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if code in (WRONG_USE, STOPPED, ADDRESS_TAKEN):
            self._refusals = 1 if lived_s >= _SETTLED_S else self._refusals + 1
            refused_at_start = code == WRONG_USE and not self._settled
            if refused_at_start or self._refusals >= _REFUSALS_MAX:
                self.stopped, self.stopped_code = _own_words(self._console.last_lines()), code
                return
            wait_s = _REFUSED_WAITS_S[self._refusals - 1]
        else:
            self._refusals = 0
        self._start_at_s = now_s + wait_s
        self._note_failing(how)
        when = f"in {wait_s:.1f} s" if wait_s else "at once"
        self._say(f"{self.role} {how}; it starts again {when} (log: {self._console.path})")

    def _note_failing(self, how: str) -> None:
        failures = self._backoff.failures
        self._failing = None
        if failures >= FAILING_FROM:
            words = _own_words(self._console.last_lines())
            self._failing = f"{how}, {failures} times in a row, and is started again: {words}"
        if failures == FAILING_FROM:
            self._say(f"{self.role} {self._failing}")

    def _count_superseded(self, code: int, lived_s: float) -> None:
        if code != SUPERSEDED:
            self._superseded = 0
            return
        self._superseded = 1 if lived_s >= _SETTLED_S else self._superseded + 1
        if self._superseded >= _SUPERSEDED_MAX:
            raise ReplacedError(self.role)


def _own_words(lines: Sequence[str]) -> str:
    """The last line that `tidemark` printed as its error, without the command's name; else the last line."""
    for line in reversed(lines):
        if line.startswith("tidemark "):
            return line.split(": ", 1)[-1]
    return lines[-1] if lines else "it ended without a message"
