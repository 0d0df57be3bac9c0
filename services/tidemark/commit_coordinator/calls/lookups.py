"""`tidemark lookup`: asks the assigners that hold the keys' lanes."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidemark.admin.v1 import admin_pb2
from tidemark.assigner.v1 import assigner_pb2, assigner_pb2_grpc
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.lanes import assign_lane, lane_of_shard
from tidemark.errors import ErrorKind
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.stream_runtime.rpc.channel import DEADLINE_S, call, open_channel
from tidemark.stream_runtime.rpc.interceptors import left_s
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity


class NoAssignerError(CoordinatorError):
    """No live assigner holds the lane of a key."""

    kind = ErrorKind.RETRYABLE


class KeyLookups:
    """Asks the holders of the keys' lanes, with one call for each assigner."""

    def __init__(
        self,
        table: str,
        members: Members,
        num_shards: int,
        lanes: int,
        security: ClientSecurity = IN_THE_CLEAR,
    ) -> None:
        self._table = table
        self._members = members
        self._num_shards = num_shards
        self._lanes = lanes
        self._security = security

    def lookup(self, keys: list[str]) -> Iterable[admin_pb2.LookupResponse.Found]:
        """The answers in the order of the keys. Raises NoAssignerError, and what the calls raise."""
        by_address: dict[str, list[str]] = {}
        for key, shard in zip(
            keys, record_index_shard(pa.array(keys, pa.string()), self._num_shards), strict=True
        ):
            lane = assign_lane(lane_of_shard(int(shard), self._lanes))
            holder = self._members.holder(Stage.ASSIGN, lane)
            if holder is None:
                raise NoAssignerError(f"no assigner holds lane {lane} (key {key!r}): start one, or wait")
            by_address.setdefault(holder.address, []).append(key)
        answers: dict[str, admin_pb2.LookupResponse.Found] = {}
        for address, wanted in by_address.items():
            for location in self._ask(address, wanted):
                answers[location.key] = admin_pb2.LookupResponse.Found(
                    key=location.key,
                    tier=location.tier,
                    partition_path=location.partition_path,
                    file_id=location.file_id,
                    shard=location.shard,
                    has_ordering=location.has_ordering,
                    ordering=location.ordering,
                    ordering_exact=location.ordering_exact,
                )
        return [answers[key] for key in keys if key in answers]

    def _ask(self, address: str, keys: list[str]) -> Iterable[assigner_pb2.LookupResponse.Found]:
        host, _, port = address.rpartition(":")
        channel = open_channel(Address(host.strip("[]"), int(port)), security=self._security)
        try:
            stub = assigner_pb2_grpc.IndexAssignerStub(channel)
            request = assigner_pb2.LookupRequest(table=self._table, keys=keys)
            answer = call(stub.Lookup, request, left_s(DEADLINE_S))
            return list(answer.found)
        finally:
            channel.close()
