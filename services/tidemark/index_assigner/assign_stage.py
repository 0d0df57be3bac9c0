"""Builds the assign stage of a process: cache, index, placement, tagger, emitter, lookups; asks for a rewind
when the topics lack batches that counting entries name.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.index_assigner.assign.emit import EmitLimits, Emitter
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.assign.lookups import LookupQueue, LookupService
from tidemark.index_assigner.assign.placement import CoordinatorLeases, Placement
from tidemark.index_assigner.assign.tagger import BatchTagger
from tidemark.index_assigner.assign.uncommitted_limits import UncommittedLimits
from tidemark.index_assigner.assign.warming import WarmRequests
from tidemark.index_assigner.assign.work import AssignParts, AssignWork
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.errors import CacheInUseError
from tidemark.index_assigner.index.limits import limits_of
from tidemark.index_assigner.index.rocks import RocksTier, check_not_in_use
from tidemark.index_assigner.index.table_index import cache_identity, table_index
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import ThreadedLoads
from tidemark.index_assigner.slots.stage_work import StageWork
from tidemark.index_assigner.stage_context import StageContext
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.ledger_client.table_identity import TABLE_ID
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.rpc.channel import call
from tidemark.stream_runtime.rpc.errors import RpcError

_CACHES_MAX: Final = 16
_T = TypeVar("_T")


def assign_work(context: StageContext) -> StageWork:
    """Builds the assign stage, with its RocksDB cache below ``state.path``, and opens the lookup service.

    Raises SetupError when the data topic is missing, CacheInUseError when no cache folder is free.
    """
    config, facts, clock, storage = context.config, context.facts, context.clock, context.storage
    locations = Locations(_data_partitions(context))
    limits = limits_of(config.state)
    limits.check()
    kind = read_record_index_kind(storage)
    partitioned = kind is IndexKind.PARTITIONED
    identity = cache_identity(table_identity(storage, context.ids), kind, facts.num_shards, facts.lanes)
    rocks = open_cache(config.state.path, identity, limits.rocks_memory)
    seen, loads = context.observer.tier_read, ThreadedLoads(context.awaited_index.waiting, context.stop)
    index = table_index(
        config, storage, context.schema, kind, facts.num_shards, rocks, locations, clock, loads, seen
    )
    lanes, ordered, ttl_ms = facts.lanes, context.ordering is not None, config.table.index.tombstone_ttl_ms
    leases = CoordinatorLeases(
        context.coordinator, config.table.name, context.process_id, clock, context.ids.random()
    )
    placement = Placement(leases, locations, context.ids)
    queue, warming = LookupQueue(AskedLanes(kind, facts.num_shards, lanes), locations, clock), WarmRequests()
    context.lookups.open(LookupService(config.table.name, queue, locations, warming))
    return AssignWork(
        AssignParts(
            topics=context.topics,
            schema=context.schema,
            shards=facts.num_shards,
            folds=context.folds,
            source=context.keyed_source(),
            locations=locations,
            index=index,
            opener=LaneOpener(
                index,
                context.client,
                context.topics,
                lambda: MetadataTableSnapshot.load(storage),
                clock,
                ordered,
                context.awaited_index.waiting,
                context.stop,
            ),
            placement=placement,
            tagger=BatchTagger(index, locations, placement, clock, ordered, ttl_ms, partitioned),
            emitter=Emitter(
                context.schema,
                locations,
                lanes,
                EmitLimits(config.limits.batch_bytes, config.limits.message_bytes),
                partitioned,
            ),
            lookups=queue,
            warming=warming,
            clock=clock,
            uncommitted=UncommittedLimits(config.state.uncommitted_memory, config.limits.uncommitted_entries),
            want_rewind=RewindRequester(context.coordinator, config.table.name, context.process_id),
            close_index=lambda: _close(index, rocks),
        )
    )


def _close(index: TieredIndex, rocks: RocksTier) -> None:
    index.stop()
    rocks.close()


def table_identity(storage: Storage, ids: IdSource) -> str:
    """Returns the random id in the table's `table-id` file; writes a new one when there is none.

    It tells a table from another one that was deleted and created again in the same place: the new table has
    a new id, so a RocksDB cache of the old one is thrown away.
    """
    with contextlib.suppress(AlreadyExistsError):
        storage.create(TABLE_ID, ids.uuid().encode())
    content: bytes = storage.read(TABLE_ID)
    return content.decode()


def open_cache(state: Path, identity: str, memory_bytes: int) -> RocksTier:
    """Opens the first cache folder below ``state`` that no other process uses.

    Folders are tried in order of their number. So a process that is started again takes its former folder,
    as long as no other process took it in between.
    """
    return _first_free(state, lambda folder: RocksTier(folder, identity, memory_bytes))


def open_first_cache(state: Path, identity: str, memory_bytes: int) -> RocksTier:
    """Opens the cache folder that the next assigner takes. Raises CacheInUseError while one has it."""
    return RocksTier(_cache_folder(state, 0), identity, memory_bytes)


def check_cache_free(state: Path) -> None:
    """Raises CacheInUseError when one more assigner would find no free cache folder below ``state``.

    Creates no file or folder.
    """
    _first_free(state, check_not_in_use)


def _cache_folder(state: Path, number: int) -> Path:
    return state / f"index-{number}"


def _first_free(state: Path, use: Callable[[Path], _T]) -> _T:
    for number in range(_CACHES_MAX):
        try:
            return use(_cache_folder(state, number))
        except CacheInUseError:
            if number == _CACHES_MAX - 1:
                raise
    raise AssertionError("the loop returns or raises")


def _data_partitions(context: StageContext) -> int:
    admin = context.client.admin()
    try:
        partitions = admin.partitions(context.topics.data)
    finally:
        admin.close()
    if partitions is None:
        raise SetupError(
            f"topic {context.topics.data} does not exist: start the coordinator, which creates it"
        )
    return partitions


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
