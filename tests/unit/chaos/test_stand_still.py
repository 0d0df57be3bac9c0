"""What a round that waits in vain says of its services: where the threads of each are."""

from __future__ import annotations

import time
from pathlib import Path

from tests.chaos.seat import Seat

PROGRAM = """
import threading

inside = threading.Event()

def waits_in_vain():
    inside.set()
    threading.Event().wait()

threading.Thread(target=waits_in_vain, daemon=True).start()
inside.wait()
print("ready", flush=True)
threading.Event().wait()
"""


def test_the_stacks_of_a_service_say_where_its_threads_are(tmp_path: Path) -> None:
    package = tmp_path / "tidemark"
    package.mkdir()
    (package / "program.py").write_text(PROGRAM)
    seat = Seat("coordinator", "coordinator", tmp_path / "logs", lambda: tmp_path / "config.yaml")
    seat.command = ("program",)
    seat.environment["PYTHONPATH"] = str(package)
    try:
        seat.tend()
        deadline_s = time.monotonic() + 60.0
        while "ready" not in seat.tail() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        seat.freeze()
        said = seat.stacks()
    finally:
        seat.kill_all()
    assert "in waits_in_vain" in said
    assert said.startswith("threads of coordinator:")
    assert seat.pid() is None
    assert seat.stacks() == "coordinator does not run"
