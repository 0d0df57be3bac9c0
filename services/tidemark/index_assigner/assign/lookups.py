"""`tidemark.assigner.v1.IndexAssigner`: tells in which file group a key is, for `tidemark lookup`.

Only the loop's thread may use the index. So gRPC threads put questions into a bounded queue, and the loop
answers them once per round.
"""

from __future__ import annotations

import queue
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import pyarrow as pa

from tidemark.assigner.v1 import assigner_pb2 as pb
from tidemark.assigner.v1 import assigner_pb2_grpc as rpc
from tidemark.epoch_protocol.lanes import lane_of_shard
from tidemark.errors import ErrorKind
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.errors import AssignerError
from tidemark.index_assigner.index.ports import KeyIndex, LookupAnswer, Tier

_WAITING_MAX: Final = 16
_KEYS_MAX: Final = 1_000
_TIMEOUT_S: Final = 5.0


class LookupBusyError(AssignerError):
    """The assign stage did not answer in time, or too many questions wait: try again."""

    kind = ErrorKind.RETRYABLE


class BadLookupError(AssignerError):
    """The request names another table, or too many keys at once."""

    kind = ErrorKind.INVALID


class LookupQueue:
    """The queue of questions. gRPC threads call `ask`; the thread that owns the index calls `answer`."""

    def __init__(self, locations: Locations, num_shards: int, lanes: int) -> None:
        self._locations = locations
        self._num_shards = num_shards
        self._lanes = lanes
        self._waiting: queue.Queue[tuple[list[str], Future[list[pb.LookupResponse.Found]]]] = queue.Queue(
            _WAITING_MAX
        )

    def ask(self, keys: Sequence[str], timeout_s: float = _TIMEOUT_S) -> list[pb.LookupResponse.Found]:
        """Returns one answer per distinct key, in order of first mention. Raises LookupBusyError."""
        future: Future[list[pb.LookupResponse.Found]] = Future()
        try:
            self._waiting.put_nowait((list(dict.fromkeys(keys)), future))
            return future.result(timeout_s)
        except (queue.Full, FutureTimeoutError) as error:
            future.cancel()
            raise LookupBusyError("the assign stage is busy: try again") from error

    def answer(self, index: KeyIndex, lanes: Collection[int]) -> None:
        """Answers all waiting questions. ``lanes``: those whose index is open; keys of others stay
        unanswered.
        """
        while True:
            try:
                keys, future = self._waiting.get_nowait()
            except queue.Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._look_up(index, lanes, keys))
            except Exception as error:  # a failed lookup for a person must not end the stage
                future.set_exception(error)

    def _look_up(
        self, index: KeyIndex, lanes: Collection[int], keys: list[str]
    ) -> list[pb.LookupResponse.Found]:
        names = pa.array(keys, pa.string())
        shards = record_index_shard(names, self._num_shards)
        replies = [
            pb.LookupResponse.Found(key=key, shard=shard)
            for key, shard in zip(keys, shards.tolist(), strict=True)
        ]
        for lane in lanes:
            mine = [at for at, reply in enumerate(replies) if lane_of_shard(reply.shard, self._lanes) == lane]
            if mine:
                answer = index.lookup(lane, names.take(pa.array(mine)), shards[mine])
                for at, position in enumerate(mine):
                    self._fill(replies[position], answer, at)
        return replies

    def _fill(self, reply: pb.LookupResponse.Found, answer: LookupAnswer, at: int) -> None:
        """Copies one position of the index's answer into the reply."""
        stored = answer.stored
        reply.tier = Tier.NONE.name.lower()
        if stored.present[at]:
            location = int(stored.location[at])
            reply.tier = Tier(int(answer.tier[at])).name.lower()
            reply.partition_path = self._locations.partition_paths[location]
            reply.file_id = self._locations.file_ids[location]
        if stored.has_ordering[at]:
            reply.has_ordering = True
            reply.ordering = int(stored.ordering[at])
        reply.ordering_exact = bool(stored.exact[at])


class LookupService(rpc.IndexAssignerServicer):
    """The gRPC handlers: they check the request and ask the queue."""

    def __init__(self, table: str, queue: LookupQueue) -> None:
        self._table = table
        self._queue = queue

    def Lookup(self, request: pb.LookupRequest, _: object) -> pb.LookupResponse:  # noqa: N802 - gRPC's name
        """Looks up the request's keys. Raises BadLookupError, LookupBusyError."""
        if request.table != self._table:
            raise BadLookupError(f"this assigner serves table {self._table!r}, not {request.table!r}")
        if len(request.keys) > _KEYS_MAX:
            raise BadLookupError(f"{len(request.keys)} keys at once; ask for at most {_KEYS_MAX}")
        return pb.LookupResponse(found=self._queue.ask(list(request.keys)))
