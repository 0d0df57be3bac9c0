"""How the C library allocates, in a process of its own; and how much memory this process has."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.stream_runtime import allocator
from tidemark.stream_runtime.allocator import anonymous_bytes

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


MAPPED = """
import ctypes
from tidemark.stream_runtime.allocator import use_system_allocator

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "arena o s h mapped u f used free keep".split()]

libc = ctypes.CDLL(None)
libc.mallinfo.restype, libc.malloc.restype = Info, ctypes.c_void_p
libc.free.argtypes, libc.malloc.argtypes = [ctypes.c_void_p], [ctypes.c_size_t]
use_system_allocator()
libc.free(libc.malloc(24 << 20))
before = libc.mallinfo().mapped
held = libc.malloc(8 << 20)
print(libc.mallinfo().mapped - before >> 20)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo"), reason="not glibc")
def test_a_large_array_has_a_mapping_of_its_own_also_after_a_larger_one_was_freed() -> None:
    """With glibc's own limit, which freeing the first one moves, the second lies between small blocks."""
    done = subprocess.run(
        [sys.executable, "-c", MAPPED], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "8\n"


MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_what_a_process_allocated_is_anonymous_and_a_mapped_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(bytes(32 * MIB))
    before = anonymous_bytes()
    assert before is not None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert not any(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))
        beside = anonymous_bytes()
    # A mapping, not an array: the C library may give an array pages that the process has already.
    with mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(b"1" * len(held))
        after = anonymous_bytes()
    assert beside is not None
    assert after is not None
    assert beside - before < 8 * MIB
    assert after - beside > (32 - 8) * MIB
    for content in (None, "Name: x\n"):
        elsewhere = tmp_path / str(content is None)
        if content is not None:
            elsewhere.write_text(content)
        monkeypatch.setattr(allocator, "_STATUS", elsewhere)
        assert anonymous_bytes() is None
