"""Chooses the file group of each insert, from file groups leased from the coordinator, per table partition.

Leases only control file sizes. Two assigners may insert into one file group: its rows go through one
partition of `data` to one writer task. So when the coordinator does not answer, inserts exceed a used-up
lease, and only the file becomes larger. A rewind drops all leases nevertheless, because the foreign commit
that caused it may have replaced a leased file group, and rows written to a replaced group are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Protocol

import numpy as np

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.errors import ErrorKind
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.errors import AssignerError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.retry import RetryPolicy, is_retryable, retry
from tidemark.stream_runtime.rpc.channel import call

_WANTS_MAX: Final = 2_000
_REQUEST_BYTES: Final = 1 << 20
_WANT_BYTES: Final = 32
"""Size of a `Want` in a request, without its path."""
# Rows for a file group that is made here; about as many as the coordinator leases at once.
_APART_RECORDS: Final = 100_000
_RETRIES: Final = RetryPolicy(attempts_max=5, timeout_s=3.0)


class NoPlaceError(AssignerError):
    """The coordinator does not answer, and no file group of the partition is leased: try again."""

    kind = ErrorKind.RETRYABLE


class Want(NamedTuple):
    """Inserts to place into one table partition: their number, and their size in Arrow bytes."""

    partition_path: str
    records: int
    bytes: int


class InsertLease(NamedTuple):
    """A file group that may take ``records`` inserts before the assigner asks again."""

    partition_path: str
    file_id: str
    records: int


class FileGroupLeases(Protocol):
    """The coordinator's `LeaseFileGroups`."""

    def lease(self, wants: Sequence[Want]) -> Sequence[InsertLease]:
        """Returns one lease or more per want. Raises an error of kind RETRYABLE when it cannot be asked
        now.
        """
        ...


class CoordinatorLeases:
    """`FileGroupLeases` over gRPC. A failed call is repeated up to 5 times within 3 s."""

    def __init__(
        self, stub: rpc.CommitCoordinatorStub, table: str, process_id: str, clock: Clock, random: Random
    ) -> None:
        self._stub = stub
        self._table = table
        self._process_id = process_id
        self._clock = clock
        self._random = random

    def lease(self, wants: Sequence[Want]) -> Sequence[InsertLease]:
        return [lease for some in _in_requests(wants) for lease in self._ask(some)]

    def _ask(self, wants: Sequence[Want]) -> Sequence[InsertLease]:
        request = pb.LeaseFileGroupsRequest(
            table=self._table,
            process_id=self._process_id,
            wants=[pb.LeaseFileGroupsRequest.Want(**want._asdict()) for want in wants],
        )
        answer = retry(
            lambda: call(self._stub.LeaseFileGroups, request, timeout_s=2.0),
            self._clock,
            self._random,
            _RETRIES,
        )
        return [InsertLease(lease.partition_path, lease.file_id, lease.records) for lease in answer.leases]


def _in_requests(wants: Sequence[Want]) -> Iterator[Sequence[Want]]:
    """Splits the wants into requests of limited size: a batch may have any number of table partitions."""
    begin, held_bytes = 0, 0
    for at, want in enumerate(wants):
        want_bytes = len(want.partition_path.encode()) + _WANT_BYTES
        if held_bytes and held_bytes + want_bytes > _REQUEST_BYTES:
            yield wants[begin:at]
            begin, held_bytes = at, 0
        held_bytes += want_bytes
    if begin < len(wants):
        yield wants[begin:]


@dataclass
class _LeasedCapacity:
    """A file group that takes ``left`` more inserts."""

    location: int
    left: int


class Placement:
    """Leased file groups by table partition. For one thread.

    Holds a few leases per table partition, and one file group that `isolated` made.
    """

    def __init__(self, leases: FileGroupLeases, locations: Locations, ids: IdSource) -> None:
        self._leases = leases
        self._locations = locations
        self._ids = ids
        self._pool: dict[int, list[_LeasedCapacity]] = {}
        self._apart: dict[int, _LeasedCapacity] = {}
        self._generation = 0

    def follow(self, generation: int) -> None:
        """Drops all leases if they are of another generation of the fold than this one."""
        if generation != self._generation:
            self.forget()
            self._generation = generation

    def forget(self) -> None:
        """Drops all leases, and the file groups that `isolated` made."""
        self._pool.clear()
        self._apart.clear()

    def place(self, partitions: Int32Array, record_bytes: int) -> Int32Array:
        """Returns a location per insert, given each insert's partition id.

        ``record_bytes``: about the Arrow bytes of a row. Raises NoPlaceError when the coordinator leases no
        file group for a partition of which none is leased.
        """
        locations = np.empty(len(partitions), np.int32)
        if not len(partitions):
            return locations
        # Sorting makes each partition's inserts one range, which is cut up by leases as a whole: partitions
        # [3, 1, 3] are sorted by the order [1, 0, 2]; the locations of partition 1, then 3, go back by it.
        order = np.argsort(partitions, kind="stable")
        ids, starts, counts = np.unique(partitions[order], return_index=True, return_counts=True)
        self._provide(ids.tolist(), counts.tolist(), record_bytes)
        placed = [
            self._take(partition, count)
            for partition, count in zip(ids.tolist(), counts.tolist(), strict=True)
        ]
        assert starts[0] == 0
        locations[order] = np.concatenate(placed)
        return locations

    def isolated(self, partitions: Int32Array, fresh: bool) -> Int32Array:
        """Returns a location per insert that must not go where `place` put it, given its partition id.

        Such rows of a partition share one new file group, whose id is made here: no delete in it can hide
        them. It takes them until it has 100 000 or until `forget`; the coordinator fills it up once it sees
        it in a commit. ``fresh``: make another one, because a delete in the last one hides these rows, too.
        """
        locations = np.empty(len(partitions), np.int32)
        for partition in np.unique(partitions).tolist():
            members = np.flatnonzero(partitions == partition)
            room = self._apart.get(partition)
            if room is None or fresh or room.left <= 0:
                name = self._locations.partition_names[partition]
                location = self._locations.intern(name, f"{self._ids.uuid()}-0")
                room = self._apart[partition] = _LeasedCapacity(location, _APART_RECORDS)
            room.left -= len(members)
            locations[members] = room.location
        return locations

    def _provide(self, ids: list[int], counts: list[int], record_bytes: int) -> None:
        wants = []
        for partition, count in zip(ids, counts, strict=True):
            missing = count - sum(room.left for room in self._pool.get(partition, ()))
            if missing > 0:
                name = self._locations.partition_names[partition]
                wants.append(Want(name, missing, missing * max(record_bytes, 1)))
        for first in range(0, len(wants), _WANTS_MAX):
            self._lease(wants[first : first + _WANTS_MAX])

    def _lease(self, wants: list[Want]) -> None:
        try:
            leases = self._leases.lease(wants)
        except Exception as error:
            if not is_retryable(error):
                raise
            self._check_known(wants, error)
            return
        for lease in leases:
            partition = self._locations.intern_partition(lease.partition_path)
            location = self._locations.intern(lease.partition_path, lease.file_id)
            rooms = [room for room in self._pool.get(partition, []) if room.left > 0]
            self._pool[partition] = [*rooms, _LeasedCapacity(location, lease.records)]
        self._check_known(wants, None)

    def _check_known(self, wants: list[Want], error: Exception | None) -> None:
        for want in wants:
            if not self._pool.get(self._locations.intern_partition(want.partition_path)):
                raise NoPlaceError(
                    f"no file group for partition {want.partition_path!r}: "
                    + (f"the coordinator cannot be asked ({error})" if error else "the coordinator gave none")
                ) from error

    def _take(self, partition: int, count: int) -> Int32Array:
        """Takes ``count`` inserts out of the partition's leases; the last lease takes what exceeds them
        all.
        """
        rooms = self._pool[partition]
        shares = []
        for room in rooms:
            share = min(room.left, count)
            room.left -= share
            count -= share
            shares.append(share)
        shares[-1] += count
        taken = np.repeat(np.array([room.location for room in rooms], np.int32), shares)
        # The last one is kept even when it is used up: inserts exceed it when the coordinator does not
        # answer.
        self._pool[partition] = [room for room in rooms[:-1] if room.left > 0] + rooms[-1:]
        return taken
