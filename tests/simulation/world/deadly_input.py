"""Records that end the process that fetches or decodes them, and the process that reads suspect lanes apart.

The product's parent (`careful_lanes`) and child (`careful_child`) run as they are, but for their pipe, their
thread and the Kafka client: the child does a task when its parent asks for the next thing that was found, and
it dies alone.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from queue import Empty, Queue
from signal import SIGKILL
from typing import Any, Final, cast
from unittest.mock import patch

from testing.kafka import MemoryKafkaClient
from tests.simulation.world.process import Process
from tidemark.index_assigner import stage_context
from tidemark.index_assigner.input import careful_lanes
from tidemark.index_assigner.input.careful_frames import (
    Answer,
    CarefulSettings,
    Kind,
    Task,
    read_frame,
    write_frame,
)
from tidemark.index_assigner.input.careful_lanes import ChildReader, Found
from tidemark.index_assigner.shuffle import careful_child
from tidemark.index_assigner.shuffle.configured_keyer import configured_keyer
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.record_formats.errors import InputWaitsError
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ports import Isolation, Message, TopicPartition

FETCHED: Final = "fetched"
DECODED: Final = "decoded"
SETTINGS: Final = CarefulSettings(ahead={"alone": False}, alone={"alone": True})


class _DiedError(BaseException):
    """The child's own death."""


class DeadlyInput:
    """Where such records lie. ``deaths``: of processes that read lanes together, by the lane and by where it
    stood then.
    """

    def __init__(self, client: MemoryKafkaClient, position: Callable[[TopicPartition], int]) -> None:
        """``position``: up to where a lane's records are in transactions that count."""
        self._client, self._position = client, position
        self._batches: dict[TopicPartition, list[tuple[int, int, str]]] = defaultdict(list)
        self._keyers: dict[Process, RecordKeyer] = {}
        self.deaths = Counter[tuple[TopicPartition, int]]()

    def add(self, place: TopicPartition, first: int, last: int, when: str) -> None:
        """A record batch whose first record ends who decodes it, or the whole of which who fetches it."""
        self._batches[place].append((first, last, when))

    def is_at(self, place: TopicPartition, offset: int) -> bool:
        """Whether a lane is to stop there."""
        return any(first == offset for first, _, _ in self._batches[place])

    def last_of(self, place: TopicPartition, offset: int) -> int | None:
        """The last offset of the deadly batch that holds this one."""
        return next((last for first, last, _ in self._batches[place] if first <= offset <= last), None)

    def harmless(self, messages: Sequence[Message], when: str) -> int:
        """How many of the messages come before the first that is deadly then."""
        for number, each in enumerate(messages):
            for first, last, kind in self._batches.get(TopicPartition(each.topic, each.partition), ()):
                if kind == when and first <= each.offset <= (last if when == FETCHED else first):
                    return number
        return len(messages)

    def read(self, process: Process, messages: Sequence[Message], when: str) -> None:
        """The process fetched or decodes these; raises Crashed when that is its end."""
        harmless = self.harmless(messages, when)
        if harmless < len(messages):
            place = TopicPartition(messages[harmless].topic, messages[harmless].partition)
            self.deaths[place, self._position(place)] += 1
            process.die()

    # ------------------------------------------------------------ edges

    def client_of(self, process: Process) -> MemoryKafkaClient:
        """The cluster as a process meets it that reads the input."""
        return cast(MemoryKafkaClient, _Client(self._client, self, process))

    def patches(self, owner: Callable[[], Process]) -> Iterator[AbstractContextManager[object]]:
        """In place while the world runs; ``owner``: of what is being made."""

        def keyer(*args: Any) -> _Keyer:
            made = self._keyers[owner()] = configured_keyer(*args)
            return _Keyer(made, self, owner())

        def child_reader(setup: Any, bytes_max: int, clock: Any) -> _SteppedReader:
            return _SteppedReader(setup, bytes_max, clock, self, owner())

        yield patch.object(stage_context, "configured_keyer", keyer)
        yield patch.object(stage_context, "ChildReader", child_reader)
        yield patch.object(careful_lanes, "_RETRY_S", 0.0)
        yield patch.object(careful_child, "_has_room", lambda: True)

    def child_of(self, process: Process) -> _Child:
        """A child that reads lanes of the process apart."""
        return _Child(self._client, _ChildsKeyer(self._keyers[process], self), self)


class _Client:
    def __init__(self, inner: MemoryKafkaClient, deadly: DeadlyInput, process: Process) -> None:
        self._inner, self._deadly, self._process = inner, deadly, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def partition_reader(self, *args: Any, **more: Any) -> _Reader:
        return _Reader(self._inner.partition_reader(*args, **more), self._deadly, self._process)

    def last_of_batch(self, place: TopicPartition, offset: int) -> int:
        last = self._deadly.last_of(place, offset)
        return self._inner.last_of_batch(place, offset) if last is None else last


class _Reader:
    def __init__(self, inner: Any, deadly: DeadlyInput, process: Process) -> None:
        self._inner, self._deadly, self._process = inner, deadly, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, *args: Any) -> list[Message]:
        found: list[Message] = self._inner.poll(*args)
        self._deadly.read(self._process, found, FETCHED)
        return found


class _Keyer:
    def __init__(self, inner: RecordKeyer, deadly: DeadlyInput, process: Process) -> None:
        self._inner, self._deadly, self._process = inner, deadly, process
        self.rows_bytes_max = inner.rows_bytes_max

    def key_records(self, messages: Sequence[Message]) -> Any:
        self._deadly.read(self._process, messages, DECODED)
        return self._inner.key_records(messages)


# ------------------------------------------------------------ who reads apart


class _ChildsKeyer:
    def __init__(self, inner: RecordKeyer, deadly: DeadlyInput) -> None:
        self._inner, self._deadly = inner, deadly

    def key_records(self, messages: Sequence[Message]) -> Any:
        if self._deadly.harmless(messages, DECODED) < len(messages):
            raise _DiedError
        return self._inner.key_records(messages)


class _Consumer:
    """Takes the place of `AssignedConsumer`. ``alone``: one batch at a time."""

    def __init__(self, client: MemoryKafkaClient, deadly: DeadlyInput, alone: bool) -> None:
        self._reader = client.partition_reader(Isolation.READ_COMMITTED)
        self._deadly, self._alone = deadly, alone

    def check_exists(self, places: Iterable[TopicPartition]) -> None:
        return None

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        self._places = list(positions)
        self._reader.assign(positions)

    def poll(
        self, messages_max: int, *_: Any
    ) -> tuple[list[Message], dict[TopicPartition, int], KafkaError | None]:
        try:
            found = self._reader.poll(messages_max, 0.0)
        except KafkaError as error:
            return [], {}, error
        harmless = self._deadly.harmless(found, FETCHED)
        if harmless < len(found) and not (self._alone and harmless):
            raise _DiedError
        ends = {} if found else {place: self._reader.position(place) for place in self._places}
        return found[:harmless], ends, None

    def close(self) -> None:
        self._reader.close()


class _Work(careful_child._Reading):
    """A task of the child."""

    def __init__(self, child: _Child, task: Task, out: io.BytesIO) -> None:
        super().__init__(SETTINGS, cast(RecordKeyer, child.keyer), task, out)
        self._child = child

    def _consumer(self, settings: dict[str, Any]) -> Any:
        return _Consumer(self._child.client, self._child.deadly, settings["alone"])


class _Answers:
    """The child's standard output."""

    def __init__(self) -> None:
        self.content = io.BytesIO()

    def read(self, count: int) -> bytes:
        return self.content.read(count)

    def close(self) -> None:
        return None


class _Child:
    """Takes the place of the child's `Popen`, and of its standard input."""

    def __init__(self, client: MemoryKafkaClient, keyer: _ChildsKeyer, deadly: DeadlyInput) -> None:
        self.client, self.keyer, self.deadly = client, keyer, deadly
        self.stdin, self.stdout = self, _Answers()
        self._told = b""
        self._code = 0

    def write(self, content: bytes) -> None:
        self._told += content

    def flush(self) -> None:
        """A whole task came: it is done at once."""
        told, self._told = self._told, b""
        task, out = read_frame(io.BytesIO(told), Task), io.BytesIO()
        assert task is not None
        try:
            write_frame(out, self._answer(task, out))
        except _DiedError:
            self._code = -SIGKILL
        self.stdout.content = io.BytesIO(out.getvalue())

    def _answer(self, task: Task, out: io.BytesIO) -> Answer:
        try:
            return _Work(self, task, out).run()
        except (KafkaError, InputWaitsError) as error:
            return Answer(Kind.FAILED, text=str(error))

    def wait(self, timeout_s: float = 0.0) -> int:
        return self._code

    def kill(self) -> None:
        return None

    def close(self) -> None:
        return None


class _NoThread:
    def join(self, timeout_s: float) -> None:
        return None


class _SteppedReader(ChildReader):
    """Works when it is asked what was found, a task at a time."""

    def __init__(self, setup: Any, bytes_max: int, clock: Any, deadly: DeadlyInput, process: Process) -> None:
        super().__init__(setup, bytes_max, clock)
        self._deadly, self._process = deadly, process
        self._current: Any = None
        # Nobody empties it while the child works.
        self._found = Queue()
        self._thread = cast(Any, _NoThread())

    def found(self) -> Found | None:
        self._process.place("careful reader")
        if self._current is None or self._is_over(self._current):
            self._current = self._next_task()
        if self._current is not None:
            self._step(self._current)
        return super().found()

    def _next_task(self) -> Any:
        try:
            return self._tasks.get_nowait()
        except Empty:
            return None

    def _started(self) -> Any:
        if self._child is None:
            self._child = cast(Any, self._deadly.child_of(self._process))
        return self._child
