"""What surrounds the assign stage: cache folders, the table's identity, leases over gRPC."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.index_assigner.assign.placement import CoordinatorLeases, InsertLease, Want
from tidemark.index_assigner.assign_stage import open_cache, table_identity
from tidemark.stream_runtime.rpc.errors import RpcError

MEMORY = 8 << 20


def test_assigners_of_one_machine_get_folders_of_their_own_and_find_them_again(tmp_path: Path):
    first, second = open_cache(tmp_path, "t", MEMORY), open_cache(tmp_path, "t", MEMORY)
    assert first.path != second.path
    second.write([([b"k"], [b"v"])])
    second.close()
    again = open_cache(tmp_path, "t", MEMORY)
    assert again.path == second.path
    assert again.get(b"k") == b"v"
    again.close()
    first.close()


def test_a_table_that_was_made_again_in_the_same_place_has_another_identity(tmp_path: Path):
    ids = SeededIds(1)
    storage = open_storage(str(tmp_path / "table"))
    first = table_identity(storage, ids)
    assert table_identity(storage, ids) == first
    cache = open_cache(tmp_path / "state", first, MEMORY)
    cache.write([([b"k"], [b"v"])])
    cache.close()
    shutil.rmtree(tmp_path / "table")
    second = table_identity(open_storage(str(tmp_path / "table")), ids)
    assert second != first
    cache = open_cache(tmp_path / "state", second, MEMORY)
    assert cache.get(b"k") is None
    cache.close()


class Stub:
    """Fails ``failures`` times with the status, then answers."""

    def __init__(self, failures: int, status: grpc.StatusCode) -> None:
        self.failures, self.status = failures, status
        self.requests: list[pb.LeaseFileGroupsRequest] = []

    def LeaseFileGroups(self, request: pb.LeaseFileGroupsRequest, timeout: float | None = None) -> Any:  # noqa: N802
        self.requests.append(request)
        if len(self.requests) <= self.failures:
            raise RpcError("LeaseFileGroups", self.status, "away")
        leases = [
            pb.LeaseFileGroupsResponse.Lease(partition_path=w.partition_path, file_id="f", records=w.records)
            for w in request.wants
        ]
        return pb.LeaseFileGroupsResponse(leases=leases)


def leases(stub: Stub) -> CoordinatorLeases:
    return CoordinatorLeases(stub, "t", "p", ManualClock(), Random(1))  # type: ignore[arg-type]


def test_leasing_is_tried_again_within_limits():
    stub = Stub(2, grpc.StatusCode.UNAVAILABLE)
    assert leases(stub).lease([Want("d1", 5, 500)]) == [InsertLease("d1", "f", 5)]
    assert len(stub.requests) == 3
    assert (stub.requests[0].table, stub.requests[0].wants[0].bytes) == ("t", 500)
    gone = Stub(1_000, grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(RpcError):
        leases(gone).lease([Want("d1", 5, 500)])
    assert len(gone.requests) <= 5


def test_a_refusal_is_not_tried_again():
    stub = Stub(1_000, grpc.StatusCode.INVALID_ARGUMENT)
    with pytest.raises(RpcError):
        leases(stub).lease([Want("d1", 5, 500)])
    assert len(stub.requests) == 1
