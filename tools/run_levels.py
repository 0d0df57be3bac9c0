"""`make test`: every level of tests, one that mostly waits beside one that mostly computes, and from the
start a third in the time that both leave over.

Levels without brokers and JVMs have low priority: a test that waits is not slowed by one that only computes.
What a level prints is kept in a file and shown as a whole when the level ends. All levels run, also after one
failed; the errors of those that failed are shown again at the very end, below all that the others printed.

Where there is not the memory for that (`BESIDE_BYTES`), they run one after another.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import psutil

from tidemark.stream_runtime.clock import Clock, SystemClock

ROOT: Final = Path(__file__).resolve().parents[1]
WAITING: Final = ("compose-test", "integration")
COMPUTING: Final = ("class-data", "interop", "e2e", "lint", "golden", "contract", "unit")
"""What is left at the end is taken by whoever has nothing to do, the last first. `e2e` waits as well, and
comes as soon as `interop` has ended: behind `integration`, the three that wait would take longer than both
cores need for everything. `class-data` is no level: those behind it take less time for it.
"""
FILLING: Final = ("simulation",)
"""It computes, in time of its own: on cores that others want it may take as long as they do."""
LOW_PRIORITY: Final = {"lint": 5, "unit": 5, "golden": 5, "simulation": 10}
"""Level -> what `nice` takes."""
ONLY_ON_REQUEST: Final = ("lint", "compose-test")
BESIDE_BYTES: Final = 8 << 30
_LOWERED: Final = '{ echo "$0" >/proc/self/autogroup; } 2>/dev/null; exec nice -n "$0" "$@"'
"""Linux compares sessions first, and processes by `nice` only within one: services have sessions of their
own, and so has a level of low priority.
"""
_ERRORS: Final = ("E  ", "FAILED ", "ERROR ")
"""How pytest begins the lines of an error and of its summary."""
_ERROR_LINES: Final = 40
_TOLD_EVERY_S: Final = 60.0
_LOOK_EVERY_S: Final = 1.0
"""A signal to end is seen then at the latest."""


@dataclass(frozen=True)
class Ended:
    """A level's end. ``took_s``: seconds. ``errors``: if it failed, the last lines that say what failed."""

    level: str
    passed: bool
    took_s: float
    errors: tuple[str, ...] = ()


@dataclass
class Levels:
    """One run. ``command``: what runs a level, in a process of its own."""

    command: Callable[[str], Sequence[str]]
    out: TextIO
    clock: Clock
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, tuple[subprocess.Popen[Any], float]] = {}
        self._stopped = False

    def run(self, lanes: Sequence[Sequence[str]]) -> bool:
        """Runs every level of each lane in its order, the lanes side by side; whether all passed. A lane that
        is done takes the last ones of the others.
        """
        left = [deque(lane) for lane in lanes]
        with ThreadPoolExecutor(len(left)) as pool:
            working: list[Future[None]] = []
            told_s = self.clock.monotonic_s()
            try:
                working += (pool.submit(self._work, lane, left) for lane in left)
                while wait(working, _LOOK_EVERY_S).not_done:
                    if self.clock.monotonic_s() >= told_s + _TOLD_EVERY_S:
                        told_s = self.clock.monotonic_s()
                        self._tell_running()
            finally:
                self._stop()
        for each in working:
            each.result()
        return all(each.passed for each in self.ended)

    def _work(self, own: deque[str], lanes: Sequence[deque[str]]) -> None:
        while level := self._next(own, lanes):
            with tempfile.TemporaryFile("w+", errors="replace") as printed:
                if not self._run_one(level, printed):
                    return

    def _next(self, own: deque[str], lanes: Sequence[deque[str]]) -> str | None:
        with self._lock:
            if own:
                return own.popleft()
            return next((lane.pop() for lane in lanes if lane), None)

    def _run_one(self, level: str, printed: TextIO) -> bool:
        """Returns whether to go on."""
        with self._lock:
            if self._stopped:
                return False
            process = subprocess.Popen(
                self.command(level),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=level in LOW_PRIORITY,
            )
            self._running[level] = process, self.clock.monotonic_s()
            self._say(f"==> {level}: begins")
        code = process.wait()
        with self._lock:
            _, began_s = self._running.pop(level)
            took_s = self.clock.monotonic_s() - began_s
            self._say(f"==> {level}")
            errors = self._show(printed)
            ended = Ended(level, code == 0, took_s, errors if code else ())
            self.ended.append(ended)
            self._say(told(ended))
        return True

    def _show(self, printed: TextIO) -> tuple[str, ...]:
        """Returns the errors in it."""
        errors: deque[str] = deque(maxlen=_ERROR_LINES)
        printed.seek(0)
        for line in printed:
            self.out.write(line)
            if line.startswith(_ERRORS):
                errors.append(line.rstrip())
        return tuple(errors)

    def _tell_running(self) -> None:
        with self._lock:
            now_s = self.clock.monotonic_s()
            running = [f"{level} for {now_s - began:.0f} s" for level, (_, began) in self._running.items()]
            self._say(f"==> running: {', '.join(running)}")

    def _stop(self) -> None:
        """Nothing runs any more where all went well."""
        with self._lock:
            self._stopped = True
            for process, _ in self._running.values():
                process.terminate()

    def _say(self, line: str) -> None:
        self.out.write(f"{line}\n")
        self.out.flush()


def told(ended: Ended) -> str:
    """One line."""
    return f"==> {ended.level}: {'passed in' if ended.passed else 'FAILED after'} {ended.took_s:.0f} s"


def summary(levels: Sequence[Ended]) -> list[str]:
    """What failed, and why, behind what passed."""
    passed_first = sorted(levels, key=lambda ended: not ended.passed)
    return [line for ended in passed_first for line in (*ended.errors, told(ended))]


def lanes_of(extra: Sequence[str], memory_bytes: int) -> list[list[str]]:
    """Three lanes, or one where there is little memory; of those in `ONLY_ON_REQUEST` the ``extra`` ones."""
    lanes = [
        [level for level in lane if level in extra or level not in ONLY_ON_REQUEST]
        for lane in (COMPUTING, WAITING, FILLING)
    ]
    return lanes if memory_bytes >= BESIDE_BYTES else [[level for lane in lanes for level in lane]]


def make(level: str) -> list[str]:
    """The level's own target."""
    low = ["sh", "-c", _LOWERED, str(LOW_PRIORITY[level])] if level in LOW_PRIORITY else []
    return [*low, "make", "--no-print-directory", level]


def _terminated(*_: object) -> None:
    sys.exit(143)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when a level failed."""
    parser = argparse.ArgumentParser(prog="make test", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extra", nargs="*", choices=[[], *ONLY_ON_REQUEST], help="what is run, too")
    parser.add_argument("--one-by-one", action="store_true", help="as where there is little memory")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    memory = 0 if options.one_by_one else psutil.virtual_memory().available
    levels = Levels(make, sys.stdout, SystemClock())
    passed = levels.run(lanes_of(options.extra, memory))
    sys.stdout.writelines(f"{line}\n" for line in summary(levels.ended))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
