"""Where the record batch ends that nobody can read: asked by reading at later offsets, in a child process.

The client says of an unreadable batch where it begins, whichever of its offsets is asked for. So the end is
found by bisection: an offset of the batch fails with the same beginning, the first one behind it does not. A
batch may also unpack to more than there is memory: the child that reads has a limit, is the first that the
kernel ends, and its death is an answer too.

The parent (`BatchProbe`) writes one line for each question to the child (`python -m` this module), which
answers with one line. Settings, passwords among them, go the same way, and never into an argument list.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from stream_runtime.kafka.errors import KafkaUnavailableError, UnreadableBatchError
from stream_runtime.kafka.ports import TopicPartition

_MEMORY_BYTES_MAX: Final = 1 << 30
_READ_S: Final = 10.0
_STEP_S: Final = 0.2


class Probe(NamedTuple):
    """What reading at an offset came to. ``readable``: a record, or the end; else ``base`` is where the
    unreadable batch begins, -1 when the reader died of it.
    """

    readable: bool
    base: int = -1


def last_of_batch(ask: Callable[[int], Probe], offset: int, end: int) -> int:
    """The last offset of the unreadable batch that holds ``offset``; ``offset`` itself when it can be read.

    ``end``: the partition's end. About 2 log2(n) questions for a batch of n offsets.
    """
    first = ask(offset)
    if first.readable:
        return offset
    inside, step = offset, 1
    while inside + step < end and _same(first, ask(inside + step)):
        inside += step
        step *= 2
    outside = min(inside + step, end)
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if _same(first, ask(middle)):
            inside = middle
        else:
            outside = middle
    return inside


def _same(first: Probe, other: Probe) -> bool:
    return not other.readable and other.base == first.base


class BatchProbe:
    """Asks a child process; a context manager that ends it. Used by one thread."""

    def __init__(self, settings: Mapping[str, Any], topic_partition: TopicPartition) -> None:
        """``settings``: those of a consumer."""
        self._setup = json.dumps({"settings": dict(settings), "place": topic_partition})
        self._place = topic_partition
        self._child: subprocess.Popen[str] | None = None

    def ask(self, offset: int) -> Probe:
        """Raises KafkaUnavailableError when nothing can be told now."""
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(f"{offset}\n")
            child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            self._end()
            return Probe(False)
        answer = json.loads(line)
        if "unavailable" in answer:
            topic, partition = self._place
            raise KafkaUnavailableError(f"{topic}[{partition}] offset {offset}: {answer['unavailable']}")
        return Probe(answer["readable"], answer["base"])

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert self._child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.write(self._setup + "\n")
                self._child.stdin.flush()
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def __enter__(self) -> BatchProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def _limit_memory() -> None:
    """Before anything large: what we read is said to be larger than memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _read(settings: Mapping[str, Any], place: TopicPartition, offset: int) -> dict[str, Any]:
    from stream_runtime.kafka.confluent.consumer import AssignedConsumer

    consumer = AssignedConsumer(dict(settings), "probe")
    try:
        consumer.assign({place: offset})
        waited_s = 0.0
        while waited_s < _READ_S:
            messages, ends, failure = consumer.poll(1, _STEP_S)
            if isinstance(failure, UnreadableBatchError):
                return {"readable": False, "base": failure.base_offset}
            if messages or place in ends:
                return {"readable": True, "base": -1}
            waited_s += _STEP_S
        return {"unavailable": "nothing came"}
    finally:
        consumer.close()


def main() -> None:
    """The child: a line with settings, then an offset a line, an answer a line, until its parent is gone."""
    _limit_memory()
    setup = json.loads(sys.stdin.readline())
    place = TopicPartition(*setup["place"])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_read(setup["settings"], place, int(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
