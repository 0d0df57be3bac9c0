"""Decoding that never ends, in code that lets no other Python run."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import threading

import pytest

from testing.clock import ManualClock
from tidemark.record_formats.decode_bound import DecodeBound

HANG = """
import re
from tidemark.record_formats.decode_bound import DecodeBound
from tidemark.stream_runtime.clock import SystemClock
with DecodeBound(SystemClock(), 600.0):
    print("quick", flush=True)
with DecodeBound(SystemClock(), 1.0):
    re.match(r"(a+)+$", "a" * 64 + "b")
"""


def test_a_process_that_hangs_in_c_ends_and_says_where() -> None:
    ended = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout) == (1, "quick\n")
    assert "Timeout" in ended.stderr
    assert "re" in ended.stderr


def test_the_limit_is_that_of_whoever_began_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one timer, and several threads decode."""
    set_to: list[float | None] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda left_s, **_: set_to.append(left_s))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: set_to.append(None))
    bound = DecodeBound(ManualClock(), 1_000.0)

    def other() -> None:
        with bound:
            assert set_to[-1] is not None

    with bound:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60.0)
        assert set_to[-1] is not None
        assert set_to[-1] == 1_000.0
    assert len(set_to) == 4
    assert set_to.pop() is None
