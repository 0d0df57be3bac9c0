"""Runs a bin in a child process and waits for it. The child's memory is its own: it is measured, bounded and
given back, whatever Spark's workers do afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import IO, Final

import msgspec

from tidemark.hudi_format.table_services.operations import MergeOutcome
from tidemark.stream_writer.table_services.bins import (
    BinReport,
    Blame,
    ChildMessage,
    MergeBin,
    MergeFailed,
    decode_bin,
    encode_bin,
    encode_report,
    weight,
)
from tidemark.stream_writer.table_services.child import read_message, write_message

_MODULE: Final = "tidemark.stream_writer.table_services.child"
# A child that says nothing for so long hangs: a merge reads several MB a second, on a busy machine too.
_SILENCE_S: Final = 600.0
_BYTES_PER_S: Final = 1_000_000
_STDERR_CHARS: Final = 2_000
_ENDS_S: Final = 10.0


Child = subprocess.Popen[bytes]


def run_bin(data: bytes, started: Callable[[Child], None] = lambda _: None) -> bytes:
    """Runs an encoded bin in a child process and returns its encoded report: the work of a Spark task.
    `started` gets the process, which may be killed: that fails the operation at which it is.
    """
    work = decode_bin(data)
    if not work.scratch:
        work = msgspec.structs.replace(work, scratch=_executors_folder())
    return encode_report(run_in_child(work, started=started))


def _executors_folder() -> str:
    """Where this executor keeps files of its own: the one of Spark's local folders with most space. Spark
    names them to its workers, and deletes what is there when the executor ends. "" where none is left: those
    below /tmp may be swept away, as systems do with old files.
    """
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    folders = [folder for folder in named if os.path.isdir(folder)]
    return max(folders, key=lambda folder: shutil.disk_usage(folder).free, default="")


def run_in_child(
    work: MergeBin, command: Sequence[str] = (), started: Callable[[Child], None] = lambda _: None
) -> BinReport:
    """Runs the bin. A child that dies, or says nothing for too long, fails the operation at which it was;
    operations behind it were not tried. `command` replaces the child's, in tests.
    """
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command or (sys.executable, "-m", _MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
        )
        try:
            started(child)
            return _followed(child, work, errors)
        finally:
            # Also when this thread is interrupted: a child never outlives its task.
            child.kill()
            child.wait(_ENDS_S)
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def _followed(child: Child, work: MergeBin, errors: IO[bytes]) -> BinReport:
    assert child.stdin is not None
    assert child.stdout is not None
    outcomes: list[MergeOutcome] = []
    failures: list[MergeFailed] = []
    with contextlib.suppress(BrokenPipeError):
        write_message(child.stdin, encode_bin(work))
    # The last message is the child's memory. It comes early when the action is over.
    for number in range(len(work.operations) + 1):
        numbered = work.operations[min(number, len(work.operations) - 1)]
        silence_s = _SILENCE_S + weight(numbered.operation) / _BYTES_PER_S
        timer = threading.Timer(silence_s, child.kill)
        timer.daemon = True
        timer.start()
        message = read_message(child.stdout)
        timer.cancel()
        if message is None:
            if number < len(work.operations):
                failures.append(_death(child, numbered.ordinal, silence_s, errors))
            break
        said = msgspec.msgpack.decode(message, type=ChildMessage)
        if said.peak_bytes:
            return BinReport(tuple(outcomes), tuple(failures), said.peak_bytes)
        if said.outcome is not None:
            outcomes.append(said.outcome)
        if said.failure is not None:
            failures.append(said.failure)
    return BinReport(tuple(outcomes), tuple(failures))


def _death(child: Child, ordinal: int, silence_s: float, errors: IO[bytes]) -> MergeFailed:
    try:
        code = child.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        code = 0
    errors.seek(0, os.SEEK_END)
    errors.seek(max(errors.tell() - _STDERR_CHARS, 0))
    said = errors.read().decode(errors="replace").strip()
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    hint = f", or said nothing for {silence_s:.0f} s" if code == -9 else ""
    text = f"the process of the merge ended {how}{hint}: {said}"
    return MergeFailed(ordinal, "ChildDied", text, blame=Blame.PERHAPS)


def _environment() -> dict[str, str]:
    """The child finds our code where this process does, and its allocations count against its limit: Arrow's
    own pool reserves memory in large pieces.
    """
    path = os.pathsep.join(path for path in sys.path if path)
    settings = {"PYTHONPATH": path, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    return {**os.environ, **settings}
