"""Finds the last offset of an unreadable record batch by reading at later offsets, in child processes.

There are two kinds of unreadable batches:

1. librdkafka reports an error that names the batch's first offset, whichever of its offsets is read. Then the
   end is found by bisection. Example: the batch at 100 to 149. Reading at 149 fails with first offset 100;
   reading at 150 succeeds, or fails with another first offset.
2. The batch unpacks to more than the memory there is, and the process that reads it dies. That does not tell
   which batch it was: another such batch may follow, with good records between the two. Then the batch's
   header names its last offset (`batch_header`). If the header cannot be read, all offsets are tried one by
   one, and the range ends before the first one that can be read.

The parent (`BatchProbe`) writes one line for each question to a child (`python -m` this module), which
answers one line. The child forks for each question, and the fork reads with a Kafka client of its own, in
about 50 ms; so the fork may die. The child gets its settings, passwords among them, in a line, too: an
argument list could be read by other users.
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
    """The result of reading at an offset. ``readable``: a record came, or the partition ends there. Else
    ``base`` is the first offset of the unreadable batch, -1 if the reader died of it.
    """

    readable: bool
    base: int = -1


Header = Callable[[int], BatchOffsets]
"""Returns first and last offset of the batch that holds an offset; raises HeaderUnavailableError."""


def last_of_batch(ask: Callable[[int], Probe], offset: int, end: int, header: Header | None = None) -> int:
    """The last offset of the unreadable batch that holds ``offset``; ``offset`` itself if it can be read.

    ``end`` is the partition's high watermark. For a batch of n offsets ``ask`` is called about 2 log2(n)
    times, or n times if its readers die and ``header`` does not help. Raises KafkaUnavailableError if
    readers die at the partition's end as well: then the batch is not the cause.
    """
    first = ask(offset)
    if first.readable:
        return offset
    if first.base < 0:
        if (next_offset := _by_header(header, offset)) is not None:
            return min(next_offset, max(end - 1, offset))
        if not ask(end).readable:
            raise KafkaUnavailableError(
                f"a process that reads at offset {offset} dies, and so does one that reads at the "
                "partition's end: the batch is not the cause"
            )
        behind = (at for at in range(offset + 1, end) if not _same(first, ask(at)))
        return next(behind, max(end, offset + 1)) - 1
    # Doubling steps from a good guess `inside` the batch until one is `outside`, then halving between both.
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
            "the header of the record batch at offset %d cannot be read, so each offset of the batch is "
            "tried, which takes about a second each: %s",
            offset,
            error,
        )
        return None
    return last if first <= offset <= last else None


def _same(first: Probe, other: Probe) -> bool:
    return not other.readable and other.base == first.base


class BatchProbe:
    """Asks a child process to read at offsets. A context manager that ends the child. Used by one thread."""

    def __init__(self, settings: Mapping[str, Any], topic_partition: TopicPartition) -> None:
        """``settings`` are those of a librdkafka consumer."""
        memory = spare_memory_bytes()
        self._setup = json.dumps({"settings": dict(settings), "place": topic_partition, "memory": memory})
        self._place = topic_partition
        self._child: subprocess.Popen[str] | None = None

    def ask(self, offset: int) -> Probe:
        """Reads at the offset. Raises KafkaUnavailableError if that has no result now."""
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
                f"{topic}[{partition}] offset {offset}: the child process that reads it has ended"
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
    """Reads at the offset in a fork and returns its answer. If the fork dies, the batch is unreadable."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer_and_end(setup, place, offset, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    # A fork that answered and died afterwards died of the next batch, which its client had fetched, too.
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
        # confluent-kafka raises SystemError if it cannot create an object, usually for lack of memory.
        os.abort()
    except Exception as error:
        answer = {"unavailable": f"{type(error).__name__}: {error}"}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def _read(settings: Mapping[str, Any], place: TopicPartition, offset: int) -> dict[str, Any]:
    """Reads one message. The client is not closed after an answer, since closing waits for the batches that
    it fetches meanwhile, and the process could die of one of them; it ends with the process.
    """
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
    # Closing waits for a batch that is being unpacked, and the process dies of it if it is too large.
    consumer.close()
    return {"unavailable": "nothing came"}


def main() -> None:
    """The child process. It reads one line with settings, then offsets, one a line; it answers each with one
    line of JSON, and ends with its parent.
    """
    end_with_parent()
    setup = json.loads(sys.stdin.readline())
    place = TopicPartition(*setup["place"])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(setup, place, int(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
