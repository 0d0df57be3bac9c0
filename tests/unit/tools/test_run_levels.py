"""`make test`: some levels at a time, each whole and unmixed in what is shown, and none left out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from testing.clock import ManualClock
from tools.run_levels import BESIDE_BYTES, LOW_PRIORITY, Levels, lanes_of, make, summary

ROOT = Path(__file__).resolve().parents[3]


def shell(folder: Path, scripts: dict[str, str]) -> Callable[[str], Sequence[str]]:
    """Each level is a script that runs in the folder and leaves a file of its name with its end."""

    def command(level: str) -> list[str]:
        script = f"({scripts.get(level, 'true')}); code=$?; touch {level}; exit $code"
        return ["sh", "-c", f"cd {folder}; {script}"]

    return command


def ran(folder: Path, scripts: dict[str, str], lanes: list[list[str]]) -> tuple[bool, str, list[str]]:
    out = io.StringIO()
    levels = Levels(shell(folder, scripts), out, ManualClock())
    passed = levels.run(lanes)
    return passed, out.getvalue(), [each.level for each in levels.ended]


def until(file: str) -> str:
    return f"until [ -e {file} ]; do sleep 0.01; done"


def test_levels_of_two_lanes_run_side_by_side_and_what_they_print_is_not_mixed(tmp_path: Path) -> None:
    # Neither of them ends unless both run at the same time; they print in turns.
    scripts = {
        "a": f"echo a1; touch a-began; {until('b-began')}; echo a2; touch a-goes-on",
        "b": f"{until('a-began')}; echo b1; touch b-began; {until('a-goes-on')}; echo b2 >&2",
    }
    passed, shown, _ = ran(tmp_path, scripts, [["a"], ["b"]])
    assert passed
    assert "==> a\na1\na2\n==> a: passed in 0 s\n" in shown
    assert "==> b\nb1\nb2\n==> b: passed in 0 s\n" in shown


def test_a_failed_level_fails_the_run_and_stops_no_other(tmp_path: Path) -> None:
    passed, shown, ended = ran(tmp_path, {"a": "echo wrong; exit 2"}, [["a", "b"], ["c"]])
    assert not passed
    assert sorted(ended) == ["a", "b", "c"]
    assert "==> a\nwrong\n==> a: FAILED after 0 s\n" in shown
    assert "==> b: passed in 0 s\n" in shown


def test_errors_of_a_failed_level_come_again_behind_all_others(tmp_path: Path) -> None:
    said = "echo a line; echo 'E   AssertionError: one'; echo 'FAILED tests/x.py::test_y - AssertionError'"
    levels = Levels(shell(tmp_path, {"a": f"{said}; exit 1", "b": said}), io.StringIO(), ManualClock())
    assert not levels.run([["a", "b"]])
    assert summary(levels.ended) == [
        "==> b: passed in 0 s",
        "E   AssertionError: one",
        "FAILED tests/x.py::test_y - AssertionError",
        "==> a: FAILED after 0 s",
    ]


def test_of_a_thousand_errors_the_last_are_shown_again(tmp_path: Path) -> None:
    script = 'for n in $(seq 1000); do echo "E  $n"; done; exit 1'
    levels = Levels(shell(tmp_path, {"a": script}), io.StringIO(), ManualClock())
    assert not levels.run([["a"]])
    assert summary(levels.ended) == [*(f"E  {n}" for n in range(961, 1001)), "==> a: FAILED after 0 s"]


def test_a_lane_that_is_done_takes_the_last_of_the_other(tmp_path: Path) -> None:
    # "a" does not end before "c" has, which is its own lane's.
    passed, _, ended = ran(tmp_path, {"a": until("c")}, [["a", "b", "c"], []])
    assert passed
    assert ended[0] == "c"
    assert sorted(ended) == ["a", "b", "c"]


def test_one_lane_runs_one_at_a_time_in_order(tmp_path: Path) -> None:
    scripts = {"b": "[ -e a ] && ! [ -e c ]", "c": "[ -e a ] && [ -e b ]"}
    passed, _, ended = ran(tmp_path, scripts, [["a", "b", "c"]])
    assert passed
    assert ended == ["a", "b", "c"]


def test_an_end_from_outside_ends_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    script = f"""
import sys
from testing.clock import ManualClock
from tools import run_levels
run_levels.make = lambda level: ["sh", "-c", "touch {tmp_path}/" + level + "; exec sleep 600"]
sys.exit(run_levels.main(["--one-by-one"]))
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as process:
        end = threading.Timer(120, process.kill)
        end.start()
        while not list(tmp_path.iterdir()) and process.poll() is None:
            time.sleep(0.01)
        process.terminate()
        assert process.wait() == 143
        end.cancel()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("memory", [0, BESIDE_BYTES])
def test_every_level_of_the_makefile_is_run_once_and_what_was_asked_for_too(memory: int) -> None:
    levels = next(
        line.split(":=")[1].split()
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith("LEVELS :=")
    )
    for extra in ([], ["lint"], ["lint", "compose-test"]):
        lanes = lanes_of(extra, memory)
        assert len(lanes) == (3 if memory else 1)
        assert sorted(level for lane in lanes for level in lane) == sorted(["class-data", *levels, *extra])


def priorities(level: str) -> tuple[bool, int, str]:
    """Of the process of a level: has it a session of its own, how nice is it, and how nice is its session?"""
    asks = "import os; print(os.getsid(0) == os.getpid(), os.nice(0), open('/proc/self/autogroup').read())"
    out = io.StringIO()
    levels = Levels(lambda name: [*make(name)[:-3], sys.executable, "-c", asks], out, ManualClock())
    assert levels.run([[level]])
    own, nice, session = out.getvalue().partition(f"==> {level}\n")[2].partition("\n")[0].split(" ", 2)
    return own == "True", int(nice), session


def test_levels_that_only_compute_have_low_priority() -> None:
    assert make("unit")[-3:] == ["make", "--no-print-directory", "unit"]
    assert make("e2e") == ["make", "--no-print-directory", "e2e"]
    ours = os.nice(0)
    assert priorities("e2e")[:2] == (False, ours)
    for level, nice in LOW_PRIORITY.items():
        own_session, seen, session = priorities(level)
        assert own_session
        assert seen == min(ours + nice, 19)
        # Empty where the kernel does not compare sessions; others than root may set this ten times a second.
        assert not session or os.geteuid() or session.endswith(f" nice {nice}")
