"""Children end when told, when they do not listen, and when their parent dies."""

import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform import child
from tidemark.stream_runtime.platform.errors import PlatformError

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


def wait_until(condition, timeout_s=60.0):
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + timeout_s
    while not condition():
        assert clock.monotonic_s() < deadline_s, "condition not reached"
        clock.sleep(0.02)


def test_child_runs_under_the_returned_pid_and_ends_on_sigterm(tmp_path):
    process = child.spawn(["/bin/sleep", "60"], tmp_path / "console.log")
    wait_until(lambda: psutil.Process(process.pid).name() == "sleep")
    assert child.end(process, SystemClock(), grace_s=60) == -signal.SIGTERM
    assert child.end(process, SystemClock(), grace_s=60) == -signal.SIGTERM


def test_deaf_child_is_killed_after_the_grace(tmp_path):
    console = tmp_path / "console.log"
    process = child.spawn([sys.executable, "-c", DEAF], console)
    wait_until(lambda: b"ready" in console.read_bytes())
    assert child.end(process, SystemClock(), grace_s=0.2) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_child_dies_with_a_killed_parent(tmp_path):
    parent_code = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from tidemark.stream_runtime.platform import child
        print(child.spawn(["/bin/sleep", "60"], Path({str(tmp_path / "console.log")!r})).pid, flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        wait_until(lambda: psutil.Process(pid).name() == "sleep")
        orphan = psutil.Process(pid)
        parent.kill()
        parent.wait()
    wait_until(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)


def test_missing_command_is_refused_by_name(tmp_path):
    with pytest.raises(PlatformError, match="/nowhere/java"):
        child.spawn(["/nowhere/java"], tmp_path / "console.log")
