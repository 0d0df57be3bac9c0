"""`tidemark index warm`: has the assigners load the record index of their lanes into run files."""

from __future__ import annotations

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.assigner.v1 import assigner_pb2
from tidemark.commit_coordinator.calls.lookups import NoAssignerError, assigner_at
from tidemark.commit_coordinator.calls.members import Members
from tidemark.epoch_protocol.entries import Stage
from tidemark.stream_runtime.rpc.channel import DEADLINE_S, call
from tidemark.stream_runtime.rpc.interceptors import left_s
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity


class IndexWarming:
    """Asks all live assigners, one after the other."""

    def __init__(
        self, table: str, shards: int, members: Members, security: ClientSecurity = IN_THE_CLEAR
    ) -> None:
        """``shards``: of the table's record index."""
        self._table, self._shards, self._members, self._security = table, shards, members, security

    def warm(self, start: bool) -> pb.WarmIndexResponse:
        """The sums over all assigners. ``start``: they begin to load what they lack.

        Raises NoAssignerError, and what the calls raise.
        """
        members = self._members.members(Stage.ASSIGN)
        if not members:
            raise NoAssignerError("no assigner holds a lane: start one, or wait")
        total = pb.WarmIndexResponse(table_shards=self._shards)
        for member in members:
            one = self._ask(member.address, start)
            total.shards += one.shards
            total.loaded += one.loaded
            total.left += one.left
            total.entries += one.entries
            total.entries_max += one.entries_max
        return total

    def _ask(self, address: str, start: bool) -> assigner_pb2.WarmResponse:
        with assigner_at(address, self._security) as stub:
            request = assigner_pb2.WarmRequest(table=self._table, start=start)
            return call(stub.Warm, request, left_s(DEADLINE_S))
