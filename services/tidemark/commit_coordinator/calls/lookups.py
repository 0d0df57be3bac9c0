"""`Lookup`: asks the assigners that hold the keys' lanes, for some keys, with a message for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.admin.v1 import admin_pb2
from tidemark.assigner.v1 import assigner_pb2, assigner_pb2_grpc
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.refusals import BadRequestError
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.lanes import assign_lane
from tidemark.errors import ErrorKind
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.stream_runtime.rpc.channel import DEADLINE_S, call, open_channel
from tidemark.stream_runtime.rpc.interceptors import left_s
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity

# An assigner refuses more at once.
_KEYS_AT_ONCE: Final = 1_000


class NoAssignerError(CoordinatorError):
    """No live assigner holds the lane of a key."""

    kind = ErrorKind.RETRYABLE


def check_partition(asked: AskedLanes, partition: str | None) -> None:
    """Raises BadRequestError for a question that must name a partition and does not, or must not."""
    if problem := asked.problem(partition):
        raise BadRequestError("partition", problem)


@contextmanager
def assigner_at(address: str, security: ClientSecurity) -> Iterator[assigner_pb2_grpc.IndexAssignerStub]:
    """The assigner at a member's address, as long as the context lasts."""
    channel = open_channel(Address.parse(address), security=security)
    try:
        yield assigner_pb2_grpc.IndexAssignerStub(channel)
    finally:
        channel.close()


class LaneHolders:
    """Which assigner has which lane now."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def address(self, lane: int) -> str:
        """The address of the live assigner that the lane is granted to. Raises NoAssignerError."""
        holder = self._members.holder(Stage.ASSIGN, assign_lane(lane))
        if holder is None:
            raise NoAssignerError(f"no assigner holds lane {lane}: start one, or wait")
        return holder.address


class KeyLookups:
    """Asks the holders of the keys' lanes, one after the other."""

    def __init__(
        self, table: str, holders: LaneHolders, asked: AskedLanes, security: ClientSecurity = IN_THE_CLEAR
    ) -> None:
        self._table = table
        self._holders = holders
        self._asked = asked
        self._security = security

    def lookup(
        self, keys: list[str], partition: str | None = None
    ) -> Iterable[admin_pb2.LookupResponse.Found]:
        """The answers in the order of the keys. Raises BadRequestError for a partition that is missing, or
        one too many; NoAssignerError, and what the calls raise.
        """
        check_partition(self._asked, partition)
        _, lanes = self._asked.shards_and_lanes(pa.array(keys, pa.string()), partition)
        address = {lane: self._holders.address(lane) for lane in np.unique(lanes).tolist()}
        by_address: dict[str, list[str]] = {}
        for key, lane in zip(keys, lanes.tolist(), strict=True):
            by_address.setdefault(address[lane], []).append(key)
        answers: dict[str, admin_pb2.LookupResponse.Found] = {}
        for holder, wanted in by_address.items():
            for location in self._ask(holder, wanted, partition):
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

    def _ask(
        self, address: str, keys: list[str], partition: str | None
    ) -> Iterable[assigner_pb2.LookupResponse.Found]:
        with assigner_at(address, self._security) as stub:
            found: list[assigner_pb2.LookupResponse.Found] = []
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                request = assigner_pb2.LookupRequest(
                    table=self._table, keys=keys[first : first + _KEYS_AT_ONCE], partition=partition
                )
                found += call(stub.Lookup, request, left_s(DEADLINE_S)).found
            return found
