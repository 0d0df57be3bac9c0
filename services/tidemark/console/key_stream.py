"""`LookupStream` for commands: batches of keys in, the same keys with their answers as columns out, in order.

A few batches are under way at a time, so that client, coordinator and assigners work side by side. Look-ups
change nothing, so a batch may be asked twice: if the stream breaks (the coordinator restarts, a pause of the
keys' source was too long for it) or a batch cannot be answered just now, all batches under way are sent again
in a new stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, Final

import grpc
import numpy as np
import pyarrow as pa

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.stream_runtime.rpc.errors import RETRIED, from_grpc

BATCH_KEYS: Final = 10_000
"""As many as the server takes. An assigner asks its index lane by lane, and with 8 lanes a key of a batch of
5 000 costs it a third more.
"""
BATCH_BYTES: Final = 1 << 20
"""Of keys; the server takes more."""
_UNDER_WAY: Final = 3
_DEADLINE_S: Final = 24 * 3_600.0
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)
COLUMNS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("tier", pa.string()),
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("shard", pa.uint32()),
        ("ordering", pa.int64()),
        ("ordering_exact", pa.bool_()),
        ("epoch", pa.uint64()),
        ("instant", pa.string()),
    ]
)
"""As `tidemark lookup --json` names them. ``partition_path`` and ``file_id`` are null without a row,
``ordering`` and ``ordering_exact`` without an ordering value, ``shard`` with a partitioned record index.
"""


class KeyStream:
    """One look-up of many keys. `method` is the stub's LookupStream, `pause` waits for so many seconds.
    `partition`: of all keys, with a partitioned record index.
    """

    def __init__(
        self, method: Any, table: str, pause: Callable[[float], None], partition: str | None = None
    ) -> None:
        self._partition = partition
        self._method = method
        self._table = table
        self._pause = pause
        self._call: Any = None
        self._requests: SimpleQueue[pb.LookupStreamRequest | None] = SimpleQueue()
        self._pending: deque[pa.StringArray] = deque()

    def answers(self, batches: Iterable[pa.StringArray]) -> Iterator[pa.RecordBatch]:
        """The answers of each batch (`COLUMNS`), which has at most `BATCH_KEYS` keys and `BATCH_BYTES` of
        them. Raises RpcError, and CliError with what the coordinator says of a batch.
        """
        try:
            for keys in batches:
                self._pending.append(keys)
                self._send(keys)
                if len(self._pending) >= _UNDER_WAY:
                    yield self._next()
            while self._pending:
                yield self._next()
        finally:
            self._end()

    def _send(self, keys: pa.StringArray) -> None:
        if self._call is None:
            # The call's own thread takes the requests from the queue, as flow control lets it.
            self._requests = SimpleQueue()
            self._call = self._method(iter(self._requests.get, None), timeout=_DEADLINE_S)
        self._requests.put(
            pb.LookupStreamRequest(table=self._table, keys=keys.to_pylist(), partition=self._partition)
        )

    def _end(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._requests.put(None)
            self._call = None

    def _next(self) -> pa.RecordBatch:
        """The answer of the oldest batch under way."""
        for pause_s in _PAUSES_S:
            try:
                return self._received()
            except _NotNowError:
                self._pause(pause_s)
                self._end()
                for keys in self._pending:
                    self._send(keys)
        try:
            return self._received()
        except _NotNowError as error:
            raise error.cause from None

    def _received(self) -> pa.RecordBatch:
        try:
            answer: pb.LookupStreamResponse = next(self._call)
        except StopIteration:
            raise CliError("the coordinator ended the stream before it had answered all keys") from None
        except grpc.RpcError as error:
            failed = from_grpc("/tidemark.admin.v1.Admin/LookupStream", error)
            if failed.kind in RETRIED:
                raise _NotNowError(failed) from None
            raise failed from None
        if answer.HasField("failure"):
            refused = CliError(answer.failure.text, 1 if answer.failure.retry else WRONG_USE)
            raise _NotNowError(refused) if answer.failure.retry else refused
        return answered(self._pending.popleft(), answer, has_shards=self._partition is None)


class _NotNowError(Exception):
    """The oldest batch may be answered later; `cause` is raised if it never is."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def answered(
    keys: pa.StringArray, answer: pb.LookupStreamResponse, has_shards: bool = True
) -> pa.RecordBatch:
    """The batch's keys with the answer's columns (`COLUMNS`). `has_shards`: the record index is global."""
    count = len(keys)
    if not len(answer.tier) == len(answer.location) == len(answer.shard) == count:
        raise CliError(f"the coordinator answered {len(answer.tier)} of {count} keys")
    # Position 0 stands for "no row", so that of two file groups x, y the list is [null, x, y].
    location = pa.array(np.array(answer.location, np.int32))
    paths = pa.array([None, *(place.partition_path for place in answer.locations)], pa.string())
    file_ids = pa.array([None, *(place.file_id for place in answer.locations)], pa.string())
    bound = np.array(answer.bound, np.int8) if answer.bound else np.zeros(count, np.int8)
    ordering = np.array(answer.ordering, np.int64) if answer.ordering else np.zeros(count, np.int64)
    none = bound == pb.LookupStreamResponse.BOUND_NONE
    return pa.RecordBatch.from_arrays(
        [
            keys,
            pa.array(list(answer.tiers), pa.string()).take(pa.array(np.array(answer.tier, np.int32))),
            paths.take(location),
            file_ids.take(location),
            pa.array(np.array(answer.shard, np.uint32)) if has_shards else pa.nulls(count, pa.uint32()),
            pa.array(ordering, mask=none),
            pa.array(bound == pb.LookupStreamResponse.BOUND_EXACT, mask=none),
            pa.array(np.full(count, answer.epoch, np.uint64)),
            pa.array([answer.instant or None], pa.string()).take(pa.array(np.zeros(count, np.int32))),
        ],
        schema=COLUMNS,
    )
