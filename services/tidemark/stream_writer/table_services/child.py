"""The process that merges a bin: `python -m tidemark.stream_writer.table_services.child`.

It reads the bin from standard input, and writes what became of each operation to standard output, one message
each (a length of four bytes, then msgpack). Standard input stays open: when the parent is gone it ends, and
so does this process, in the middle of a merge too.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from typing import IO, Final

from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.platform.loading import without_collections

_LENGTH_BYTES: Final = 4
NICENESS: Final = 10
# The interpreter with its libraries, and what an allocator holds beyond what is in use.
_BESIDE_BYTES: Final = 768 << 20
ORPHANED: Final = 3


def write_message(stream: IO[bytes], data: bytes) -> None:
    """Writes one message."""
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end of the stream, also in the middle of a message."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    data = stream.read(length)
    return data if len(data) == length else None


def main() -> None:
    """Merges the bin that standard input has."""
    with without_collections():
        use_arrow_alone()
        import msgspec
        import pyarrow as pa

        from tidemark.hudi_format.publication.locate import service_files_of
        from tidemark.hudi_format.storage.locate import open_storage
        from tidemark.hudi_format.table_services.operations import MergeOutcome
        from tidemark.stream_writer.table_services.bins import ChildMessage, MergeFailed, decode_bin
        from tidemark.stream_writer.table_services.merges import merge_bin

    data = read_message(sys.stdin.buffer)
    if data is None:
        sys.exit(ORPHANED)
    # What libraries print must not get between the messages.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, args=(sys.stdin.buffer,), daemon=True).start()
    work = decode_bin(data)
    if work.is_nice:
        os.nice(NICENESS)
    limit_memory(work.memory_bytes)
    # One task has one slot: it takes no more than one processor.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    storage = open_storage(work.base_uri)
    files = service_files_of(storage, work.token)

    def say(message: ChildMessage) -> None:
        write_message(output, msgspec.msgpack.encode(message))

    def emit(outcome: MergeOutcome | MergeFailed) -> None:
        say(
            ChildMessage(failure=outcome)
            if isinstance(outcome, MergeFailed)
            else ChildMessage(outcome=outcome)
        )

    merge_bin(work, storage, files, emit)
    say(ChildMessage(peak_bytes=peak_bytes()))


def limit_memory(memory_bytes: int) -> None:
    """Bounds this process: an allocation beyond twice the merge's memory fails, and the operation with it."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = 2 * memory_bytes + _BESIDE_BYTES
    if hard != resource.RLIM_INFINITY:
        bound = min(bound, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))


def peak_bytes() -> int:
    """The greatest resident memory of this process so far. What the system counts for a child begins with its
    parent's memory, where it was made by vfork; so Linux is asked for that of the program.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib << 10


def _end_with_parent(stream: IO[bytes]) -> None:
    stream.read(1)
    os._exit(ORPHANED)


if __name__ == "__main__":
    main()
