"""`LookupStream`: asks the assigners that hold the keys' lanes, batch after batch, in columns.

A batch of a stream takes these steps:

1. The keys become a column; their lanes say which assigner has which key.
2. Each of these assigners is asked once, all at the same time, and its columns are put at the keys' places.
3. Keys whose lane was not open at its holder (it moves, or is just being opened) are asked again.
4. If that does not help, or a call fails, the answer of the batch is a failure that names the cause.

Nothing here is kept between batches but the channels, so a stream needs the memory of one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import grpc
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.assigner.v1 import assigner_pb2, assigner_pb2_grpc
from tidemark.commit_coordinator.calls.lookups import LaneHolders, assigner_at, check_partition
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.refusals import BadRequestError
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.keys import KEY_BYTES_MAX
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.rpc.channel import DEADLINE_S
from tidemark.stream_runtime.rpc.errors import RETRIED, RpcError, from_grpc, reason_of
from tidemark.stream_runtime.rpc.interceptors import is_wanted, left_s
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity

BATCH_KEYS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 3 << 20
"""Below the limit of a request of the assigner's, too, if it holds all lanes."""
_OPENING_S: Final = (0.1, 0.3, 0.6, 1.0, 2.0)
_LOOK_EVERY_S: Final = 0.25
_NOT_HELD: Final = -1

Positions = npt.NDArray[np.int64]


class LaneNotOpenError(CoordinatorError):
    """The assigner to which the lane of a key is granted has not opened it yet."""

    kind = ErrorKind.RETRYABLE


class LookupAnswerError(CoordinatorError):
    """An assigner's columns do not have one element for each key."""

    kind = ErrorKind.CORRUPT


class LookupStreams:
    """Answers the streams; each runs on the thread of its call."""

    def __init__(
        self,
        table: str,
        holders: LaneHolders,
        asked: AskedLanes,
        clock: Clock,
        security: ClientSecurity = IN_THE_CLEAR,
    ) -> None:
        self._table = table
        self._holders = holders
        self._asked = asked
        self._clock = clock
        self._security = security

    def answers(self, batches: Iterable[pb.LookupStreamRequest]) -> Iterator[pb.LookupStreamResponse]:
        """One answer for each batch. An exception without a kind, which is a defect, ends the stream."""
        with _Assigners(self._table, self._security) as assigners:
            for number, batch in enumerate(batches):
                try:
                    answer = self._answer(batch, assigners)
                except Exception as error:
                    if kind_of(error) is None:
                        raise
                    answer = pb.LookupStreamResponse(failure=_failure(error))
                answer.batch = number
                yield answer

    def _answer(self, batch: pb.LookupStreamRequest, assigners: _Assigners) -> pb.LookupStreamResponse:
        names, partition = list(batch.keys), batch.partition if batch.HasField("partition") else None
        check_partition(self._asked, partition)
        keys = _checked(names)
        shards, lanes = self._asked.shards_and_lanes(keys, partition)
        answer = _BatchColumns(shards)
        for wait_s in (*_OPENING_S, 0.0):
            left = np.flatnonzero(answer.tier == _NOT_HELD)
            for at, part in assigners.ask(keys, partition, self._by_holder(lanes, left)):
                answer.put(at, part)
            if not (closed := np.flatnonzero(answer.tier == _NOT_HELD)).size:
                return answer.message()
            if not is_wanted():
                break
            self._clock.sleep(min(wait_s, left_s(wait_s)))
        lane = int(lanes[closed[0]])
        key = names[closed[0]]
        raise LaneNotOpenError(f"lane {lane} (key {key!r}) is not open at its assigner: ask again")

    def _by_holder(self, lanes: npt.NDArray[np.int32], left: Positions) -> dict[str, Positions]:
        """The positions in ``left`` by the address of the assigner that has their lanes. Raises
        NoAssignerError.
        """
        at: dict[str, list[Positions]] = {}
        for lane in np.unique(lanes[left]).tolist():
            at.setdefault(self._holders.address(lane), []).append(left[lanes[left] == lane])
        return {address: np.concatenate(parts) for address, parts in at.items()}


def _checked(names: list[str]) -> pa.StringArray:
    """The keys as a column. Raises BadRequestError."""
    if len(names) > BATCH_KEYS_MAX:
        raise BadRequestError("keys", f"{len(names)} keys in a batch: at most {BATCH_KEYS_MAX}")
    keys = pa.array(names, pa.string())
    ends = _offsets(keys)
    if ends[-1] > BATCH_BYTES_MAX:
        raise BadRequestError("keys", f"{ends[-1]} bytes of keys in a batch: at most {BATCH_BYTES_MAX}")
    too_long = np.flatnonzero(np.diff(ends) > KEY_BYTES_MAX)
    if too_long.size:
        raise BadRequestError(
            "keys", f"key {too_long[0]} of the batch (from 0) is longer than {KEY_BYTES_MAX} bytes"
        )
    return keys


def _offsets(keys: pa.StringArray) -> npt.NDArray[np.int32]:
    """Where each key begins in the column's data, and where the last ends."""
    buffer = keys.buffers()[1]
    if not len(keys) or buffer is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]


def _failure(error: Exception) -> pb.LookupStreamResponse.Failure:
    # What an assigner refused has its own reason: LOOKUP_BUSY says more than RPC.
    reason = (error.info.reason or error.status.name) if isinstance(error, RpcError) else reason_of(error)
    return pb.LookupStreamResponse.Failure(reason=reason, text=str(error), retry=kind_of(error) in RETRIED)


class _BatchColumns:
    """The columns of one batch, put together from those of the assigners."""

    def __init__(self, shards: npt.NDArray[np.int32]) -> None:
        count = len(shards)
        self._shards = shards
        self.tier = np.full(count, _NOT_HELD, np.int8)
        self._location = np.zeros(count, np.int32)
        self._ordering = np.zeros(count, np.int64)
        self._bound = np.zeros(count, np.int8)
        self._tiers: list[str] = []
        self._locations: list[pb.LookupStreamResponse.Location] = []
        self._committed: tuple[int, str] | None = None

    def put(self, at: Positions, part: assigner_pb2.LookupBatchResponse) -> None:
        """Takes one assigner's answer for the keys at these positions. Raises LookupAnswerError."""
        tier, location = np.frombuffer(part.tier, "i1"), np.frombuffer(part.location, "<i4")
        ordering, bound = np.frombuffer(part.ordering, "<i8"), np.frombuffer(part.bound, "i1")
        if not len(at) == len(tier) == len(location) == len(ordering) == len(bound):
            raise LookupAnswerError(f"an assigner answered {len(tier)} of {len(at)} keys")
        # One more element behind the names stands for _NOT_HELD: -1 is numpy's position of the last.
        numbers = np.array([*map(self._number_of, part.tiers), _NOT_HELD], np.int8)
        self.tier[at] = numbers[tier]
        # The places of this assigner come behind those of the others; 0 is kept for "there is no row".
        self._location[at] = np.where(location < 0, 0, location + 1 + len(self._locations))
        self._ordering[at], self._bound[at] = ordering, bound
        self._locations += [
            pb.LookupStreamResponse.Location(partition_path=path, file_id=file_id)
            for path, file_id in zip(part.partition_paths, part.file_ids, strict=True)
        ]
        committed = (part.epoch, part.instant)
        self._committed = committed if self._committed is None else min(self._committed, committed)

    def _number_of(self, tier: str) -> int:
        if tier not in self._tiers:
            self._tiers.append(tier)
        return self._tiers.index(tier)

    def message(self) -> pb.LookupStreamResponse:
        """The answer, once no key is _NOT_HELD."""
        epoch, instant = self._committed or (0, "")
        answer = pb.LookupStreamResponse(
            epoch=epoch,
            instant=instant,
            tiers=self._tiers,
            locations=self._locations,
            tier=self.tier.tolist(),
            location=self._location.tolist(),
            shard=self._shards.tolist(),
        )
        if self._bound.any():
            answer.ordering.extend(self._ordering.tolist())
            answer.bound.extend(self._bound.tolist())
        return answer


class _Assigners:
    """The channels of one stream, opened when an assigner is first asked."""

    def __init__(self, table: str, security: ClientSecurity) -> None:
        self._table = table
        self._security = security
        self._open = ExitStack()
        self._stubs: dict[str, assigner_pb2_grpc.IndexAssignerStub] = {}

    def ask(
        self, keys: pa.StringArray, partition: str | None, by_address: dict[str, Positions]
    ) -> Iterator[tuple[Positions, assigner_pb2.LookupBatchResponse]]:
        """(positions, answer for their keys) of each assigner; all are asked at the same time. Raises
        RpcError, and ends the other calls then.
        """
        asked = [
            (at, self._begin(address, keys.take(pa.array(at)), partition))
            for address, at in by_address.items()
        ]
        try:
            for at, answer in asked:
                yield at, _result(answer)
        finally:
            for _, answer in asked:
                answer.cancel()

    def _begin(self, address: str, keys: pa.StringArray, partition: str | None) -> Any:
        offsets, text = _offsets(keys), keys.buffers()[2]
        data = b"" if text is None else text.to_pybytes()[: int(offsets[-1])]
        request = assigner_pb2.LookupBatchRequest(
            table=self._table, data=data, offsets=offsets.tobytes(), partition=partition
        )
        return self._stub(address).LookupBatch.future(request, timeout=left_s(DEADLINE_S))

    def _stub(self, address: str) -> assigner_pb2_grpc.IndexAssignerStub:
        if address not in self._stubs:
            self._stubs[address] = self._open.enter_context(assigner_at(address, self._security))
        return self._stubs[address]

    def __enter__(self) -> _Assigners:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _result(answer: Any) -> assigner_pb2.LookupBatchResponse:
    """The answer of a call. It is cancelled when nobody waits for the stream any more. Raises RpcError."""
    while True:
        try:
            found: assigner_pb2.LookupBatchResponse = answer.result(_LOOK_EVERY_S)
            return found
        except grpc.FutureTimeoutError:
            if not is_wanted():
                answer.cancel()
        except grpc.FutureCancelledError:
            raise RpcError("LookupBatch", grpc.StatusCode.CANCELLED, "the caller has gone") from None
        except grpc.RpcError as error:
            raise from_grpc("LookupBatch", error) from None
