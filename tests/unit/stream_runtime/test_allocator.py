"""How many arenas the C library makes for threads, in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

ARENAS = """
import ctypes, sys, threading
from pathlib import Path
from tidemark.stream_runtime.allocator import use_system_allocator

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]

def arenas():
    file = libc.fopen(b"/proc/self/fd/1", b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)

use_system_allocator()
together = threading.Barrier(9)

def work():
    held = bytearray(4_000)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads:
    each.start()
together.wait()
arenas()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not glibc")
def test_threads_share_arenas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ARENAS], check=True, capture_output=True, text=True, timeout=60
    )
    assert 1 <= done.stdout.count("<heap nr") <= 4, "10 with an arena for each thread"
