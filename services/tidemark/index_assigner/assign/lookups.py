"""`tidemark.assigner.v1.IndexAssigner`: tells in which file group a key is, for the admin calls Lookup and
LookupStream.

Only the loop's thread may use the index. So a look-up is done in three steps:

1. A gRPC thread finds the keys' lanes, and puts a question into a bounded queue.
2. The loop answers between its other work (`LookupQueue.answer`): part by part, each with keys of one lane,
   and for at most `_ROUND_S` of a round. Tagging waits no longer than for a batch of its own.
3. The gRPC thread turns the columns of the answer into a message.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.assigner.v1 import assigner_pb2 as pb
from tidemark.assigner.v1 import assigner_pb2_grpc as rpc
from tidemark.epoch_protocol.state import Committed
from tidemark.errors import ErrorKind
from tidemark.index_assigner.assign.warming import WarmRequests, check_warmed
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.errors import AssignerError
from tidemark.index_assigner.index.ports import KeyIndex, LookupAnswer, Tier
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.rpc.interceptors import is_wanted

_WAITING_MAX: Final = 16
_KEYS_MAX: Final = 1_000
_BATCH_KEYS_MAX: Final = 10_000
_PART_KEYS: Final = 2_000
_TIMEOUT_S: Final = 5.0
# A batch has ten times as many keys as a `Lookup`, and may touch as many cold blocks. The coordinator waits
# for 10 s.
_BATCH_TIMEOUT_S: Final = 9.0
_LOOK_EVERY_S: Final = 0.1
_ROUND_S: Final = 0.02
_NEXT_WITHIN_S: Final = 0.5
_WAIT_S: Final = 0.005
NOT_HELD: Final = -1
"""In a column of tiers: the key's lane is not open at this assigner."""
_NAMES: Final = tuple(tier.name.lower() for tier in Tier)


class LookupBusyError(AssignerError):
    """The assign stage did not answer in time, too many questions wait, or the index of a lane that was open
    is being opened again: try again.
    """

    kind = ErrorKind.RETRYABLE


class BadLookupError(AssignerError):
    """The request names another table, has too many keys at once, columns that do not fit together, or a
    partition that does not fit the kind of the record index.
    """

    kind = ErrorKind.INVALID


class AnsweredKeys:
    """The answer for n unique keys as columns, in the order of the keys; the loop fills it part by part.

    ``tier``: `Tier` values, or NOT_HELD. ``ordering`` is meaningful where ``has_ordering``.
    ``committed``: the last committed epoch when the first part was answered; every part includes it.
    """

    def __init__(self, shards: Int32Array) -> None:
        count = len(shards)
        self.shards = shards
        self.tier = np.full(count, NOT_HELD, np.int8)
        self.location = np.full(count, NO_LOCATION, np.int32)
        self.ordering: Int64Array = np.zeros(count, np.int64)
        self.has_ordering: BoolArray = np.zeros(count, np.bool_)
        self.exact: BoolArray = np.zeros(count, np.bool_)
        self.committed = Committed()

    def take(self, at: Int64Array, answer: LookupAnswer) -> None:
        """Copies the index's answer for the keys at these positions."""
        stored = answer.stored
        self.tier[at] = np.where(stored.present, answer.tier, Tier.NONE)
        self.location[at] = np.where(stored.present, stored.location, NO_LOCATION)
        self.ordering[at] = np.where(stored.has_ordering, stored.ordering, 0)
        self.has_ordering[at], self.exact[at] = stored.has_ordering, stored.exact


class _Question:
    """Keys that wait for their answer. ``given_up``: nobody waits for it any more."""

    def __init__(
        self, keys: pa.StringArray, partition: str | None, shards: Int32Array, lanes: Int32Array
    ) -> None:
        self.keys = keys
        self.partition = partition
        self.answer = AnsweredKeys(shards)
        self.done: Future[AnsweredKeys] = Future()
        self.given_up = threading.Event()
        self.begun = False
        self.parts = _parts(lanes)


def _parts(lanes: Int32Array) -> Iterator[tuple[int, Int64Array]]:
    """(lane, positions of at most `_PART_KEYS` of its keys) until all keys are in a part.

    Sorted by lane, each lane's keys are one range of the order: for the lanes [1, 0, 1] the order is [1, 0,
    2], and the parts are (0, [1]) and (1, [0, 2]).
    """
    if not len(lanes):
        return
    order = np.argsort(lanes, kind="stable")
    numbers, first = np.unique(lanes[order], return_index=True)
    for lane, of_lane in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        for begin in range(0, len(of_lane), _PART_KEYS):
            yield lane, of_lane[begin : begin + _PART_KEYS]


class LookupQueue:
    """The queue of questions. gRPC threads call `ask`; the thread that owns the index calls the rest."""

    def __init__(self, asked: AskedLanes, locations: Locations, clock: Clock) -> None:
        """``locations``: the index's own."""
        self.asked = asked
        self._locations = locations
        self._clock = clock
        self._waiting: queue.Queue[_Question] = queue.Queue(_WAITING_MAX)
        self._current: _Question | None = None
        self._answered_s: float | None = None

    def ask(
        self, keys: pa.StringArray, partition: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> AnsweredKeys:
        """The answer for these unique keys, of this partition if the index is partitioned. Raises
        LookupBusyError, also when the caller has gone, and what the index raised.
        """
        question = _Question(keys, partition, *self.asked.shards_and_lanes(keys, partition))
        try:
            self._waiting.put_nowait(question)
        except queue.Full as error:
            raise LookupBusyError("too many look-ups wait for the assign stage: try again") from error
        while timeout_s > 0 and is_wanted():
            wait_s = min(timeout_s, _LOOK_EVERY_S)
            try:
                return question.done.result(wait_s)
            except FutureTimeoutError:
                timeout_s -= wait_s
        question.given_up.set()
        raise LookupBusyError("the assign stage is busy: try again")

    def answer(self, index: KeyIndex, lanes: Collection[int], committed: Committed) -> None:
        """Answers parts of questions until none waits or the round's time is over, and at least one part.

        ``lanes``: those whose index was opened; keys of others stay NOT_HELD. Where the index has closed one
        since then, the question fails with LookupBusyError. ``committed``: the last epoch whose entries the
        index has as committed ones.
        """
        ends_s: float | None = None
        while (question := self._next(committed)) is not None:
            now_s = self._clock.monotonic_s()
            ends_s = now_s + _ROUND_S if ends_s is None else ends_s
            if now_s >= ends_s:
                return
            self._answered_s = now_s
            self._go_on(question, index, lanes)

    def wait_s(self, longest_s: float) -> float:
        """How long the loop may wait for input: shortly while look-ups come one after the other, since a
        question that comes meanwhile is answered only after the wait.
        """
        if self._answered_s is None or self._clock.monotonic_s() - self._answered_s > _NEXT_WITHIN_S:
            return longest_s
        return min(longest_s, _WAIT_S)

    def _next(self, committed: Committed) -> _Question | None:
        """The question under way, else the next one that somebody waits for."""
        while self._current is None or self._current.given_up.is_set():
            try:
                self._current = self._waiting.get_nowait()
            except queue.Empty:
                self._current = None
                return None
            self._current.answer.committed = committed
        return self._current

    def _go_on(self, question: _Question, index: KeyIndex, lanes: Collection[int]) -> None:
        """Answers the next part of the question, or tells that all are answered."""
        try:
            part = next(question.parts, None)
            if part is None:
                self._current = None
                question.done.set_result(question.answer)
                return
            lane, at = part
            if lane in lanes:
                if lane not in index.open_lanes():
                    raise LookupBusyError(f"the index of lane {lane} is being opened again: try again")
                keys = question.keys.take(pa.array(at))
                question.answer.take(at, index.lookup(lane, keys, self._numbers(question, at)))
        except Exception as error:  # a failed look-up of somebody else's must not end the stage
            self._current = None
            question.done.set_exception(error)

    def _numbers(self, question: _Question, at: Int64Array) -> Int32Array:
        """What the index is asked with beside each key."""
        if question.partition is None:
            return question.answer.shards[at]
        return np.full(len(at), self._locations.asked_partition(question.partition), np.int32)


class LookupService(rpc.IndexAssignerServicer):
    """The gRPC handlers: they check the request, ask the queue, and make messages of its answers."""

    def __init__(self, table: str, queue: LookupQueue, locations: Locations, warming: WarmRequests) -> None:
        """Of ``locations`` only the names of ids in answers are read, which never change."""
        self._warming = warming
        self._table = table
        self._queue = queue
        self._locations = locations

    def Lookup(self, request: pb.LookupRequest, _: object) -> pb.LookupResponse:  # noqa: N802 - gRPC's name
        """One answer per distinct key, in order of first mention. Raises BadLookupError, LookupBusyError."""
        partition = self._check(request, len(request.keys), _KEYS_MAX)
        keys = list(dict.fromkeys(request.keys))
        answer = self._queue.ask(pa.array(keys, pa.string()), partition)
        return pb.LookupResponse(found=[self._found(key, answer, at) for at, key in enumerate(keys)])

    def LookupBatch(self, request: pb.LookupBatchRequest, _: object) -> pb.LookupBatchResponse:  # noqa: N802
        """Columns for the request's keys. Raises BadLookupError, LookupBusyError."""
        keys = _keys_of(request)
        partition = self._check(request, len(keys), _BATCH_KEYS_MAX)
        # The index takes each key once: for a, b, a the distinct keys are a, b, and ``places`` is [0, 1, 0].
        encoded = keys.dictionary_encode()
        answer, places = (
            self._queue.ask(encoded.dictionary, partition, _BATCH_TIMEOUT_S),
            encoded.indices.to_numpy(),
        )
        used, location = np.unique(answer.location, return_inverse=True)
        # NO_LOCATION sorts first; without it the positions stay as they are.
        absent = int(len(used) > 0 and used[0] == NO_LOCATION)
        names = used[absent:].tolist()
        # 0 no value, 1 a lower bound, 2 the value itself.
        bound = answer.has_ordering.astype(np.int8) + (answer.has_ordering & answer.exact)
        return pb.LookupBatchResponse(
            tier=answer.tier[places].astype("<i1").tobytes(),
            location=(location - absent)[places].astype("<i4").tobytes(),
            ordering=answer.ordering[places].astype("<i8").tobytes(),
            bound=bound[places].astype("<i1").tobytes(),
            tiers=_NAMES,
            partition_paths=[self._locations.partition_paths[number] for number in names],
            file_ids=[self._locations.file_ids[number] for number in names],
            epoch=answer.committed.epoch,
            instant=answer.committed.instant or "",
        )

    def Warm(self, request: pb.WarmRequest, _: object) -> pb.WarmResponse:  # noqa: N802
        """Begins to load the index, or tells how far that is. Raises BadLookupError, NotWarmedError,
        WarmBusyError.
        """
        self._check_table(request.table)
        check_warmed(self._queue.asked.kind)
        return pb.WarmResponse(**asdict(self._warming.ask(request.start)))

    def _check_table(self, table: str) -> None:
        if table != self._table:
            raise BadLookupError(f"this assigner serves table {self._table!r}, not {table!r}")

    def _check(self, request: pb.LookupRequest | pb.LookupBatchRequest, keys: int, most: int) -> str | None:
        """The partition that the request names."""
        self._check_table(request.table)
        if keys > most:
            raise BadLookupError(f"{keys} keys at once; ask for at most {most}")
        partition = request.partition if request.HasField("partition") else None
        if problem := self._queue.asked.problem(partition):
            raise BadLookupError(problem)
        return partition

    def _found(self, key: str, answer: AnsweredKeys, at: int) -> pb.LookupResponse.Found:
        found = pb.LookupResponse.Found(key=key, shard=int(answer.shards[at]))
        if answer.tier[at] == NOT_HELD:
            return found
        found.tier = _NAMES[answer.tier[at]]
        location = int(answer.location[at])
        if location != NO_LOCATION:
            found.partition_path = self._locations.partition_paths[location]
            found.file_id = self._locations.file_ids[location]
        if answer.has_ordering[at]:
            found.has_ordering = True
            found.ordering = int(answer.ordering[at])
        found.ordering_exact = bool(answer.exact[at])
        return found


def _keys_of(request: pb.LookupBatchRequest) -> pa.StringArray:
    """The keys as a column over the request's memory. Raises BadLookupError."""
    try:
        offsets: npt.NDArray[np.int32] = np.frombuffer(request.offsets, "<i4")
        buffers = [None, pa.py_buffer(request.offsets), pa.py_buffer(request.data)]
        keys = pa.Array.from_buffers(pa.string(), max(len(offsets) - 1, 0), buffers)
        keys.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise BadLookupError(f"keys and offsets do not fit together: {error}") from error
    return keys
