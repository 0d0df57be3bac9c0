"""`make check`: what a change should pass before it is shown to anybody, in under a minute.

Format, lint, types, import contracts, then the tests that belong to the change (`changed_tests.py`). All
steps run even when one fails: one run tells everything that is wrong. It does not replace `make test`: it
says what it left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tidemark.stream_runtime.clock import Clock, SystemClock
from tools.changed_tests import Choice, Limits, base_commit, changed_files, choose
from tools.import_graph import read_graph

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS_S: Final = 25.0
"""After so long no further test begins."""
NO_TEST_AFTER_S: Final = 45.0
"""From the start of the whole check on."""
_PYTHON: Final = sys.executable
_STATIC: Final[Sequence[Mapping[str, Sequence[str]]]] = (
    {"format": (_PYTHON, "-m", "ruff", "format", "--check", "--quiet", ".")},
    {"lint": (_PYTHON, "-m", "ruff", "check", "--quiet", ".")},
    # Each of these two keeps one core busy for some seconds.
    {
        "types": (_PYTHON, "-m", "mypy"),
        "import contracts": (str(Path(_PYTHON).with_name("lint-imports")), "--no-cache"),
    },
)
_NO_TESTS: Final = 5
"""How pytest ends when it was given modules and found no test in them that may run."""


@dataclass
class Check:
    """One run. ``failed``: the steps that did. ``until_s``: no test begins later (monotonic)."""

    out: TextIO
    clock: Clock
    failed: list[str]
    until_s: float

    def say(self, line: str = "") -> None:
        self.out.write(f"{line}\n")
        self.out.flush()

    def side_by_side(self, steps: Mapping[str, Sequence[str]]) -> None:
        """Runs these at once; what one printed is shown only when it failed."""
        started = self.clock.monotonic_s()
        running = {
            name: subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for name, command in steps.items()
        }
        for name, process in running.items():
            printed, _ = process.communicate()
            result = "ok" if process.returncode == 0 else "FAILED"
            self.say(f"{name:17} {result:7} {self.clock.monotonic_s() - started:5.1f} s")
            if process.returncode != 0:
                self.failed.append(name)
                self.say(printed)

    def tests(self, choice: Choice) -> None:
        """Runs the chosen modules, two processes, the nearest first."""
        command = [
            _PYTHON, "-m", "pytest", *choice.distances, "-n", "2", "-q", "--no-header",
            "-m", "not kafka and not spark and not slow",
            "-p", "tools.time_limit", "--for", str(TESTS_S), "--until", str(self.until_s),
        ]  # fmt: skip
        ended = subprocess.run(command, cwd=ROOT, stdout=self.out, stderr=subprocess.STDOUT, check=False)
        if ended.returncode not in (0, _NO_TESTS):
            self.failed.append("tests")


def told(choice: Choice) -> list[str]:
    """What is run and what is not, for people."""
    lines = [f"{len(choice.distances)} test modules, by the number of imports to what changed:"]
    lines += [f"  {distance}  {path}" for path, distance in choice.distances.items()]
    if choice.left_out:
        levels = ", ".join(f"{count} of `make {level}`" for level, count in choice.left_out.items())
        lines.append(f"left out, though they depend on the change: {levels} test modules")
    return lines


def run(base: str, out: TextIO, clock: Clock) -> list[str]:
    """All steps; returns the names of those that failed."""
    started = clock.monotonic_s()
    check = Check(out, clock, [], started + NO_TEST_AFTER_S)
    for steps in _STATIC:
        check.side_by_side(steps)
    changed = changed_files(ROOT, base)
    check.say(f"\n{len(changed)} files changed since {base[:12]}")
    if changed:
        choice = choose(ROOT, read_graph(ROOT), changed, Limits())
        for line in told(choice):
            check.say(line)
        if choice.distances:
            check.tests(choice)
    check.say(f"\nmake check: {clock.monotonic_s() - started:.0f} s")
    return check.failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when a step failed."""
    parser = argparse.ArgumentParser(prog="make check", description=__doc__)
    parser.add_argument("--base", help="a commit; otherwise where this branch left `main`, or HEAD")
    options = parser.parse_args(arguments)
    failed = run(options.base or base_commit(ROOT, "main"), sys.stdout, SystemClock())
    sys.stdout.write(f"FAILED: {', '.join(failed)}\n" if failed else "passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
