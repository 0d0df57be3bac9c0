"""Signals end a process whatever its main thread does at that moment."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

_PREAMBLE = """
import os, signal, sys, threading
from tidemark.stream_runtime.platform.signals import set_by_signals

first, second = threading.Event(), threading.Event()
set_by_signals(first, second)
def told(number):
    os.kill(os.getpid(), number)
"""


def ended(script: str) -> str:
    """What the process printed; fails where it did not end."""
    command = [sys.executable, "-c", _PREAMBLE + textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_that_arrives_inside_a_wait_for_its_event_sets_it(number: str) -> None:
    """Inside `wait` the main thread has the event's lock, and the handler runs between two instructions."""
    assert (
        ended(f"""
        with first._cond:
            told(signal.{number})
            for _ in range(1_000):
                pass
        first.wait()
        print("stops")
    """)
        == "stops\n"
    )


def test_each_signal_sets_the_next_event_and_more_of_them_do_nothing() -> None:
    assert (
        ended("""
        told(signal.SIGINT)
        first.wait()
        print(second.is_set())
        told(signal.SIGTERM)
        second.wait()
        told(signal.SIGTERM)
        told(signal.SIGINT)
        print("goes on")
    """)
        == "False\ngoes on\n"
    )


def test_a_process_that_got_no_signal_ends_as_ever() -> None:
    assert ended('print("ends")') == "ends\n"


def test_a_later_call_takes_the_signals_over() -> None:
    assert (
        ended("""
        other = threading.Event()
        set_by_signals(other)
        told(signal.SIGTERM)
        other.wait()
        print(first.is_set())
    """)
        == "False\n"
    )
