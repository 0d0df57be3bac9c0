"""When `make compose-test` says SKIPPED and when FAILED, and that it leaves no process behind."""

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.compose import engine, figures
from tests.compose.engine import Engine, NoEngineError, check_builds, check_runs, provide_engine
from tests.compose.figures import MemoryWatch
from tests.compose.stack import run_whole


def engine_with(folder, monkeypatch, docker, **others):
    """The only programs on the path: `docker` and others, as shell texts."""
    for name, text in {"docker": docker, **others}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return Engine({"PATH": str(folder)})


def test_an_engine_without_compose_is_a_skip(tmp_path, monkeypatch):
    engine_with(tmp_path, monkeypatch, '[ "$1" != version ] || echo 20.10; [ "$1" != compose ]')
    with pytest.raises(NoEngineError, match="compose is missing"):
        provide_engine(print)


@pytest.mark.parametrize(("driver", "enough"), [("vfs", False), ("overlay2", True)])
def test_vfs_needs_room(tmp_path, monkeypatch, driver, enough):
    engine_with(tmp_path, monkeypatch, f'case "$1" in info) echo {driver} {tmp_path} ;; *) echo 1 ;; esac')
    monkeypatch.setattr(engine, "_VFS_FREE_BYTES", 1 << 80)
    if enough:
        assert not provide_engine(print).own
    else:
        with pytest.raises(NoEngineError, match="storage driver vfs"):
            provide_engine(print)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ("exit 1", "does not see this checkout"),
        ("echo bind source path does not exist: /x >&2; exit 125", "does not see this checkout"),
        ("echo cannot clone >&2; exit 125", "cannot run a container: cannot clone"),
    ],
)
def test_an_engine_that_runs_nothing_of_ours_is_a_skip(tmp_path, monkeypatch, run, reason):
    ours = engine_with(tmp_path, monkeypatch, run)
    with pytest.raises(NoEngineError, match=reason):
        check_runs(ours, "base")


def test_a_failed_build_is_a_skip_only_without_a_base_image_that_runs(tmp_path, monkeypatch):
    ours = engine_with(tmp_path, monkeypatch, 'case "$*" in run*|*made) echo sha256 ;; *) exit 1 ;; esac')
    check_builds(ours, ["official", "made"])
    with pytest.raises(NoEngineError, match=r"none of official\), and mmdebstrap is missing"):
        check_builds(ours, ["official"])


def test_what_a_command_started_ends_with_its_time(tmp_path):
    script = "sleep 600 & echo $! >pid; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        run_whole(["sh", "-c", script], tmp_path, dict(os.environ), 3.0)
    state = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_late_answer_of_the_engine_is_counted_and_the_watch_goes_on(monkeypatch):
    asked_again = threading.Event()

    class Late:
        asked = 0

        def container(self, _service):
            self.asked += 1
            if self.asked > 1:
                asked_again.set()
                return "name"
            raise subprocess.TimeoutExpired("docker", 120)

        def docker(self, *_arguments):
            return "name 1KiB / 2KiB"

    monkeypatch.setattr(figures, "_EVERY_S", 0.01)
    late: Any = Late()
    watch = MemoryWatch(late, ("kafka",))
    assert asked_again.wait(60)
    assert watch.stop() == {"kafka": 1024}
    assert watch.timeouts == 1
