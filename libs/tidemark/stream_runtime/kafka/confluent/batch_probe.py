"""Where the record batch ends that nobody can read: asked by reading at later offsets, in child processes.

The client says of a batch that it cannot read where that begins, whichever of its offsets is asked for. So
the end is found by bisection: an offset of the batch fails with the same beginning, the first one behind it
does not. A batch may also unpack to more than there is memory: whoever reads it dies of it, which is an
answer, too, but does not say which batch it was. Another deadly batch may follow, with good records in
between. Then the batch's header tells (`batch_header`); where the header cannot be had, the offsets are asked
one by one, and the first one that can be read ends the range.

The parent (`BatchProbe`) writes one line for each question to the child (`python -m` this module), which
answers with one line. The child reads in a fork for each question, so that it has a Kafka client of its own,
and may die, within some 50 ms. Settings, passwords among them, go the same way, and never into an argument
list.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from tidemark.stream_runtime.kafka.confluent.batch_header import BatchOffsets, HeaderUnavailableError
from tidemark.stream_runtime.kafka.confluent.consumer import AssignedConsumer
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError, UnreadableBatchError
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.platform.child import end_with_parent
from tidemark.stream_runtime.platform.spare_memory import limit_own_memory, spare_memory_bytes

_READ_S: Final = 10.0
_STEP_S: Final = 0.2
_log = logging.getLogger("tidemark.kafka")


class Probe(NamedTuple):
    """What reading at an offset came to. ``readable``: a record, or the end; else ``base`` is where the
    unreadable batch begins, -1 when the reader died of it.
    """

    readable: bool
    base: int = -1


Header = Callable[[int], BatchOffsets]
"""Of the batch that holds an offset; raises HeaderUnavailableError."""


def last_of_batch(ask: Callable[[int], Probe], offset: int, end: int, header: Header | None = None) -> int:
    """The last offset of the unreadable batch that holds ``offset``; ``offset`` itself when it can be read.

    ``end``: the partition's end. About 2 log2(n) questions for a batch of n offsets, n of them where whoever
    reads it dies and no ``header`` can be had.
    """
    first = ask(offset)
    if first.readable:
        return offset
    if first.base < 0:
        if (found := _by_header(header, offset)) is not None:
            return min(found, max(end - 1, offset))
        if not ask(end).readable:
            raise KafkaUnavailableError(f"who reads offset {offset} dies, and so does who reads at the end")
        behind = (at for at in range(offset + 1, end) if not _same(first, ask(at)))
        return next(behind, max(end, offset + 1)) - 1
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


def _by_header(header: Header | None, offset: int) -> int | None:
    if header is None:
        return None
    try:
        first, last = header(offset)
    except HeaderUnavailableError as error:
        _log.warning(
            "the header of the record batch at offset %d cannot be read, so its end is asked for offset by "
            "offset, about a second each: %s",
            offset,
            error,
        )
        return None
    return last if first <= offset <= last else None


def _same(first: Probe, other: Probe) -> bool:
    return not other.readable and other.base == first.base


class BatchProbe:
    """Asks a child process; a context manager that ends it. Used by one thread."""

    def __init__(self, settings: Mapping[str, Any], topic_partition: TopicPartition) -> None:
        """``settings``: those of a consumer."""
        memory = spare_memory_bytes()
        self._setup = json.dumps({"settings": dict(settings), "place": topic_partition, "memory": memory})
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
        topic, partition = self._place
        if not line:
            self._end()
            raise KafkaUnavailableError(
                f"{topic}[{partition}] offset {offset}: the child that reads it is gone"
            )
        answer = json.loads(line)
        if "unavailable" in answer:
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


def _answer(setup: Mapping[str, Any], place: TopicPartition, offset: int) -> dict[str, Any]:
    """What a fork says that reads at the offset; if it dies, that the batch cannot be read."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer_and_end(setup, place, offset, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    # Who answered and died then, died of the batch behind the one that was asked for.
    if said:
        answer: dict[str, Any] = json.loads(said)
        return answer
    if os.WIFSIGNALED(status):
        return {"readable": False, "base": -1}
    return {"unavailable": f"the reader ended with {status}"}


def _answer_and_end(setup: Mapping[str, Any], place: TopicPartition, offset: int, writing: int) -> NoReturn:
    try:
        end_with_parent()
        limit_own_memory(setup["memory"])
        answer = _read(setup["settings"], place, offset)
    except (MemoryError, SystemError):
        # Kafka's client says SystemError where it cannot make an object, for want of memory as a rule.
        os.abort()
    except Exception as error:
        answer = {"unavailable": f"{type(error).__name__}: {error}"}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def _read(settings: Mapping[str, Any], place: TopicPartition, offset: int) -> dict[str, Any]:
    """The client ends with the process: meanwhile it may fetch what nobody asked for, and die of that."""
    consumer = AssignedConsumer(dict(settings), "probe")
    consumer.assign({place: offset})
    waited_s = 0.0
    while waited_s < _READ_S:
        messages, ends, failure = consumer.poll(1, _STEP_S)
        if isinstance(failure, UnreadableBatchError):
            return {"readable": False, "base": failure.base_offset}
        if messages or place in ends:
            return {"readable": True, "base": -1}
        waited_s += _STEP_S
    # Waits for a batch that is unpacked just now, and dies of it if it is too large.
    consumer.close()
    return {"unavailable": "nothing came"}


def main() -> None:
    """The child: a line with settings, then an offset a line, an answer a line, until its parent is gone."""
    end_with_parent()
    setup = json.loads(sys.stdin.readline())
    place = TopicPartition(*setup["place"])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(setup, place, int(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
