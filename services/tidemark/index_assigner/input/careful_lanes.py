"""Reads suspect lanes in a child process (`careful_child`), because earlier readers of them died.

A thread talks to the child, and reads one lane after the other. It hands the child's messages to the stage
like those of any reader. Reading a lane this way ends

* at a deadly record: the child died there twice in a row (`careful_rule`); or
* at the partition's end, or after more bytes than an ordinary reader fetches ahead of what it has published:
  the earlier readers did not die of a record of this lane, or the record is gone.

The parent ends a child that says nothing for three minutes. If it was decoding one record alone, it hangs in
that record, and the silence counts like a death. If it was fetching, it may have waited for the broker's
disk, so that stops no lane. (600 KB of gzip that unpack to 600 MB took it a minute on a busy machine.)
"""

from __future__ import annotations

import contextlib
import logging
import math
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import IO, Final, Protocol

import msgspec

from tidemark.index_assigner.input import careful_rule as rule
from tidemark.index_assigner.input.careful_frames import Answer, Kind, Setup, Task, read_frame, write_frame
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition, UnreadableBatchError
from tidemark.stream_runtime.platform.spare_memory import spare_memory_bytes

_CHILD: Final = "tidemark.index_assigner.shuffle.careful_child"
_EVENTS_MAX: Final = 4
_WAIT_S: Final = 0.1
_RETRY_S: Final = 0.5
_FAILURES_MAX: Final = 20
_FAILURES_OF_SILENCE: Final = 5
_SILENT_S: Final = 180.0
_END_S: Final = 10.0
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class Found:
    """A result of reading a suspect lane; exactly one of these:

    * ``messages``: read, and proven harmless;
    * ``is_over``: the lane is read with the others from ``next`` on;
    * ``is_deadly``: the record at ``next`` ends its readers (``hangs``: they never end by themselves);
    * ``error``: the client refuses a record batch.
    """

    place: TopicPartition
    messages: Sequence[Message] = ()
    next: int = 0
    is_over: bool = False
    is_deadly: bool = False
    hangs: bool = False
    error: UnreadableBatchError | None = None


class CarefulLanes(Protocol):
    """Reads suspect partitions. Owned by the stage's thread; no method but `close` waits."""

    def start(self, place: TopicPartition, first: int) -> None:
        """Reads the partition from offset ``first`` on, after those that were started before."""
        ...

    def forget(self, place: TopicPartition) -> None:
        """Stops reading the partition; its results are dropped from now on."""
        ...

    def found(self) -> Found | None:
        """Returns the next result; None when there is none yet."""
        ...

    def close(self) -> None:
        """Ends all reading."""
        ...


@dataclass
class _Reading:
    """A partition that is read in the child. ``left_bytes``: of keys and values, until it is over."""

    place: TopicPartition
    state: rule.CarefulLane
    left_bytes: int
    failures: int = 0
    may_die: bool = False
    """Whether a record of the lane could end the child in what it does now."""
    decodes_alone: bool = False
    """Whether the child decodes the record at ``state.next`` now, and does nothing else."""
    is_done: bool = False
    forgotten: threading.Event = field(default_factory=threading.Event)


class ChildReader:
    """`CarefulLanes` in a child process."""

    def __init__(
        self, setup: Setup, bytes_max: int, clock: Clock | None = None, module: str = _CHILD
    ) -> None:
        """``setup``: sent to each child, with the memory that is spare when the child starts.

        ``bytes_max``: how many bytes of keys and values to read of a lane. ``module``: the child's main
        module.
        """
        self._setup = setup
        self._clock = clock or SystemClock()
        self._silent_from_s = math.inf
        self._silenced: subprocess.Popen[bytes] | None = None
        self._module = module
        self._bytes_max = bytes_max
        self._tasks: Queue[_Reading | None] = Queue()
        self._found: Queue[tuple[_Reading, Found]] = Queue(_EVENTS_MAX)
        self._readings: dict[TopicPartition, _Reading] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, place: TopicPartition, first: int) -> None:
        self.forget(place)
        reading = self._readings[place] = _Reading(place, rule.CarefulLane(first), self._bytes_max)
        self._tasks.put(reading)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="careful-lanes", daemon=True)
            self._thread.start()

    def forget(self, place: TopicPartition) -> None:
        reading = self._readings.pop(place, None)
        if reading is not None:
            reading.forgotten.set()

    def found(self) -> Found | None:
        if self._clock.monotonic_s() - self._silent_from_s > _SILENT_S and (child := self._child) is not None:
            self._silenced = child
            child.kill()
        while True:
            try:
                reading, found = self._found.get_nowait()
            except Empty:
                return None
            if not reading.forgotten.is_set():
                return found

    def close(self) -> None:
        self._stopped.set()
        for place in list(self._readings):
            self.forget(place)
        self._tasks.put(None)
        if (child := self._child) is not None:
            child.kill()
        if self._thread is not None:
            self._thread.join(_RETRY_S + 10.0)

    # ------------------------------------------------------------ on the thread that talks to the child

    def _work(self) -> None:
        try:
            while not self._stopped.is_set() and (reading := self._tasks.get()) is not None:
                while not self._is_over(reading):
                    self._step(reading)
                if self._tasks.empty():
                    self._end_child()
        finally:
            self._end_child()

    def _is_over(self, reading: _Reading) -> bool:
        return reading.is_done or reading.forgotten.is_set() or self._stopped.is_set()

    def _step(self, reading: _Reading) -> None:
        """Gives the child one task, and follows its answers until the task or the child ends."""
        child, state = self._started(), reading.state
        reading.may_die = reading.decodes_alone = False
        assert child.stdin is not None
        assert child.stdout is not None
        task = Task(*reading.place, state.next, max(reading.left_bytes, 1), state.alone)
        with contextlib.suppress(BrokenPipeError):
            write_frame(child.stdin, task)
        while not self._is_over(reading):
            answer = self._heard(child.stdout)
            if answer is None:
                self._ended(reading, child)
                return
            if not self._follow(reading, answer):
                return
        # The reading was forgotten, and the child may be in the middle of it.
        self._end_child()

    def _heard(self, stream: IO[bytes]) -> Answer | None:
        """The child's next answer; None when the child has ended, or sent bytes that are no answer."""
        self._silent_from_s = self._clock.monotonic_s()
        try:
            return read_frame(stream, Answer)
        except msgspec.MsgspecError as error:
            _log.warning("the process that reads lanes apart sent bytes that are no answer: %s", error)
            return None
        finally:
            self._silent_from_s = math.inf

    def _follow(self, reading: _Reading, answer: Answer) -> bool:
        """Acts on an answer; returns whether the child's task goes on."""
        reading.decodes_alone = answer.kind is Kind.DECODING
        if answer.kind in (Kind.READING, Kind.FETCHED):
            reading.may_die = answer.kind is Kind.READING
            return True
        if answer.kind is Kind.TAKEN:
            messages = answer.messages()
            reading.failures = 0
            reading.left_bytes -= sum(len(one.value or b"") + len(one.key or b"") for one in messages)
            reading.state = rule.taken(reading.state, messages[-1].offset + 1, len(messages))
            self._say(reading, Found(reading.place, messages))
            return True
        if answer.kind is Kind.DECODING:
            reading.state = rule.decoding(reading.state, answer.offset)
            reading.may_die = True
            return True
        if answer.kind is Kind.DONE:
            self._over(reading, answer.offset)
        elif answer.kind is Kind.UNREADABLE:
            self._say(reading, Found(reading.place, error=_unreadable(reading.place, answer)))
            reading.forgotten.wait(_RETRY_S)
        else:
            self._failed(reading, answer.text)
        return False

    def _ended(self, reading: _Reading, child: subprocess.Popen[bytes]) -> None:
        """Judges why the child ended.

        By a signal that a record can lead to, while it read: that counts as a death of the lane's next
        record. Otherwise something else kept the child from working.
        """
        try:
            code = child.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = 0
        self._end_child()
        if child is self._silenced:
            self._was_silent(reading)
            return
        if not (reading.may_die and rule.is_death(code)):
            self._failed(
                reading, f"it ended with code {code}" + ("" if reading.may_die else ", not by reading")
            )
            return
        reading.state = rule.died(reading.state)
        topic, partition = reading.place
        _log.warning(
            "the process that reads %s[%d] apart died of signal %d at offset %d",
            topic,
            partition,
            -code,
            reading.state.next,
        )
        self._stop_if_deadly(reading)

    def _was_silent(self, reading: _Reading) -> None:
        """The parent ended the child because it said nothing for three minutes."""
        state = reading.state
        if not reading.decodes_alone:
            if reading.may_die and not state.alone:
                reading.state = rule.died(state)
            reading.failures += _FAILURES_OF_SILENCE - 1
            self._failed(reading, f"it said nothing for {_SILENT_S:.0f} s")
            return
        reading.state = rule.hung(state)
        topic, partition = reading.place
        _log.warning(
            "the process that decodes %s[%d] offset %d alone said nothing for %.0f s, and was ended",
            topic,
            partition,
            state.next,
            _SILENT_S,
        )
        self._stop_if_deadly(reading)

    def _stop_if_deadly(self, reading: _Reading) -> None:
        state = reading.state
        if state.is_deadly:
            found = Found(reading.place, next=state.next, is_deadly=True, hangs=state.is_hanging)
            self._say(reading, found)
            reading.is_done = True

    def _failed(self, reading: _Reading, text: str) -> None:
        """Counts a failure that no record led to. After 20 of them the lane is read with the others again:
        reading it apart is a precaution, and the lane must not wait for it for ever.
        """
        reading.failures += 1
        topic, partition = reading.place
        _log.warning("%s[%d] cannot be read apart: %s", topic, partition, text)
        if reading.failures >= _FAILURES_MAX:
            _log.warning(
                "%s[%d] is read with the others again, although readers died there", topic, partition
            )
            self._over(reading, reading.state.next)
        else:
            reading.forgotten.wait(_RETRY_S)

    def _over(self, reading: _Reading, after: int) -> None:
        self._say(reading, Found(reading.place, next=after, is_over=True))
        reading.is_done = True

    def _say(self, reading: _Reading, found: Found) -> None:
        while not self._is_over(reading):
            with contextlib.suppress(Full):
                self._found.put((reading, found), timeout=_WAIT_S)
                return

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._child = child = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert child.stdin is not None
            settings = self._setup
            setup = Setup(
                settings.settings, settings.config, settings.num_shards, settings.lanes, spare_memory_bytes()
            )
            with contextlib.suppress(BrokenPipeError):
                write_frame(child.stdin, setup)
        return self._child

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _unreadable(place: TopicPartition, answer: Answer) -> UnreadableBatchError:
    return UnreadableBatchError(answer.text, *place, answer.offset)
