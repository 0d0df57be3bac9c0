"""Asks the coordinator for a rewind, when the topics lack batches that counting entries name."""

from __future__ import annotations

import logging

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.stream_runtime.rpc.channel import call
from tidemark.stream_runtime.rpc.errors import RpcError

_log = logging.getLogger("tidemark.assigner")


class RewindRequester:
    """Calls `WantRewind` of the coordinator. A failed call is only logged, because the caller repeats it."""

    def __init__(self, stub: rpc.CommitCoordinatorStub, table: str, process_id: str) -> None:
        self._stub = stub
        self._table = table
        self._process_id = process_id

    def __call__(self, reason: str, generation: int, epoch: int) -> None:
        """Asks once. ``generation``: of the tags that cannot be read back; ``epoch``: the last committed
        one that the fold knew when they were read.
        """
        request = pb.WantRewindRequest(
            table=self._table,
            process_id=self._process_id,
            generation=generation,
            reason=reason,
            epoch=epoch,
        )
        try:
            call(self._stub.WantRewind, request, timeout_s=2.0)
        except RpcError as error:
            _log.warning("the coordinator could not be asked for a rewind: %s", error)
