"""Our archival beside our epochs: whoever dies, no commit is taken for another writer's, or for undone."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from testing.ids import SeededIds
from tests.simulation.scripted_epochs import EXPECTED, GROUP_A, check_traces, first_epoch, row, second_epoch
from tests.simulation.service_path import ServicePath
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.commit_coordinator.table_services.compactions import CompactIndex
from tidemark.config.table_services_model import ArchiveConfig, IndexCompactionConfig
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.publication.port import ServiceFiles
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import (
    decode_plan,
    encode_outcomes,
    output_name,
    output_path,
)
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, ArchivedTimeline, load_timeline
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.table_verification.verify import verify_table

LATER = 5
PLACES_MAX = 400
STEP = 9


class _AtOnce(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def merge_index(document: bytes, files: ServiceFiles) -> tuple[bytes, tuple[Ticket, ...]]:
    """The tasks of a compaction of the index."""
    plan, outcomes = decode_plan(document, "plan"), []
    for number, operation in plan.kept():
        path = output_path(plan, number, METADATA_TABLE_PATH)
        sink = files.grow(path)
        with tempfile.TemporaryDirectory() as scratch:
            bounds = MergeBounds(64 << 20, Path(scratch))
            counts = merge_index_shard(files.storage, operation, plan.instant, sink, bounds)
        ticket = sink.finish()
        outcomes.append(counts.outcome(number, output_name(plan, number), ticket))
    return encode_outcomes(tuple(outcomes)), tuple(each.ticket for each in outcomes if each.ticket)


def aged(folder: Path) -> ServicePath:
    """Two epochs and some more are committed, and the index is compacted: all but the last ones may go."""
    path = ServicePath(folder, lambda _: [], {ServiceKind.COMPACT_INDEX: merge_index})
    path.handlers = lambda _: [
        CompactIndex(IndexCompactionConfig(enabled=False), Placement(1 << 20, SeededIds(1))),
        Archive(ArchiveConfig(enabled=False, min=2, max=2, batch=1), _AtOnce()),
    ]
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.run_until_idle()
    for n in range(LATER):
        epoch(path, n)
    wanted(path, ServiceKind.COMPACT_INDEX)
    epoch(path, LATER)
    return path


def epoch(path: ServicePath, n: int) -> None:
    path.tag([(row("e", 4 + n, n), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()


def wanted(path: ServicePath, kind: ServiceKind) -> None:
    """An operator asks for an action, which runs to its end."""
    if path.coordinator is None:
        path.start_coordinator()
    assert path.coordinator is not None
    path.coordinator.services.want(kind, lambda number, reason: None)
    path.run_until_idle()


def archived(path: ServicePath) -> tuple[int, int]:
    roots = (".hoodie", METADATA_TABLE_ROOT)
    data, index = (len(ArchivedTimeline(path.storage, root).instants()) for root in roots)
    return data, index


def check(path: ServicePath, last: int) -> None:
    """The rows are those of all epochs, nothing was tagged anew, and what was seen is what is active."""
    assert path.rows() == {**EXPECTED, "e": row("e", 4 + last, last)}
    check_traces(path)
    state = path.state()
    assert state.generation == 0
    assert state.seen is not None
    active = {each.file_name for each in load_timeline(path.storage).completed()}
    assert state.seen.names <= active
    assert verify_table(path.storage, lambda _: None).agrees
    assert not state.services


def test_epochs_go_on_over_archived_commits(tmp_path: Path) -> None:
    path = aged(tmp_path)
    wanted(path, ServiceKind.ARCHIVE)
    wanted(path, ServiceKind.ARCHIVE)
    assert min(archived(path)) > 2
    ends = path.ended().values()
    assert [type(end) for end in ends] == [ServiceCommitted] * 3
    for n in (LATER + 1, LATER + 2):
        epoch(path, n)
    path.crash()
    epoch(path, LATER + 3)
    check(path, LATER + 3)


@pytest.mark.parametrize("first", [1, 5])
def test_a_coordinator_dies_or_is_frozen_anywhere_in_an_archival(tmp_path: Path, first: int) -> None:
    """Every ninth place from the first or the fifth on; frozen at the even ones."""
    for turn, nth in enumerate(range(first, PLACES_MAX, STEP)):
        path = aged(tmp_path / str(nth))
        path.crash()
        old = path.start_coordinator()
        freezes = turn % 2 == 0

        def happens(path: ServicePath = path, freezes: bool = freezes) -> None:
            if not freezes:
                raise FailpointHitError("here")
            path.crash()
            wanted(path, ServiceKind.ARCHIVE)

        path.points.arm(nth, happens)
        try:
            wanted(path, ServiceKind.ARCHIVE)
        except (FailpointHitError, SupersededError):
            if freezes:
                with pytest.raises(SupersededError):
                    old.step(0.0)
        is_over = path.points.is_armed
        path.crash()
        wanted(path, ServiceKind.ARCHIVE)
        wanted(path, ServiceKind.ARCHIVE)
        assert min(archived(path)) > 2
        epoch(path, LATER + 1)
        check(path, LATER + 1)
        if is_over:
            assert nth > 30
            return
    raise AssertionError("the scenario has no end")
