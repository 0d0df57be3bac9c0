"""What the timeline says of file groups: which are replaced, and which somebody plans to rewrite."""

from __future__ import annotations

from typing import Any

import pytest

from testing.memory_storage import InMemoryStorage
from tests.replaced_groups import replace_commit
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_container import encode_container
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    compaction_metrics,
    encode_compaction_plan,
)


def t(n: int) -> str:
    return f"20260101000000{n:03d}"


def base(file_id: str, n: int) -> str:
    return f"{file_id}_0-0-0_{t(n)}.parquet"


def clustering_plan(*file_ids: str) -> bytes:
    slices: list[dict[str, Any]] = [
        {
            "dataFilePath": base(file_id, 1),
            "deltaFilePaths": [],
            "fileId": file_id,
            "partitionPath": "p",
            "bootstrapFilePath": None,
            "version": 1,
        }
        for file_id in file_ids
    ]
    group = {"slices": slices, "metrics": {}, "numOutputFileGroups": 1, "extraMetadata": {}, "version": 1}
    plan: dict[str, Any] = {
        "inputGroups": [group],
        "strategy": None,
        "extraMetadata": {},
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
    }
    record = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1}
    return encode_container("requested-replace-metadata", record)


def replaces(*file_ids: str) -> bytes:
    return replace_commit({"p": file_ids}, "CLUSTER")


def commit(storage: InMemoryStorage, n: int, action: Action = Action.COMMIT, content: bytes = b"") -> None:
    plan = clustering_plan() if action is Action.CLUSTERING else b""
    inflight = create_inflight(Unfenced(storage), create_requested(Unfenced(storage), t(n), action, plan))
    complete(Unfenced(storage), inflight, t(n + 1), content)


def plan(storage: InMemoryStorage, n: int, action: Action, content: bytes) -> None:
    create_requested(Unfenced(storage), t(n), action, content)


def compaction_of(file_id: str) -> bytes:
    operation = CompactionOperation(
        partition_path="p",
        file_id=file_id,
        base_instant=t(1),
        log_files=(),
        metrics=compaction_metrics(0, 0, 0),
    )
    return encode_compaction_plan(RequestedCompaction(operations=(operation,)))


@pytest.mark.parametrize("action", [Action.CLUSTERING, Action.REPLACE_COMMIT])
def test_replaced_groups_are_in_no_slice_and_take_no_inserts(action: Action) -> None:
    storage = InMemoryStorage()
    commit(storage, 1)
    commit(storage, 3, action, replaces("a"))
    view = TableView.load(storage)
    files = {"p": [base("a", 1), base("b", 1)]}
    assert [each.file_id for each in view.slices(files)] == ["b"]
    assert [each.file_id for each in view.slices(files, as_of=t(3))] == ["a", "b"], "not yet replaced then"
    assert list(view.every_slice(files)) == [("p", "a"), ("p", "b")]
    assert (view.takes_inserts(("p", "a")), view.takes_inserts(("p", "b"))) == (False, True)


@pytest.mark.parametrize("action", [Action.CLUSTERING, Action.REPLACE_COMMIT])
def test_groups_of_a_pending_clustering_are_read_and_take_no_inserts(action: Action) -> None:
    storage = InMemoryStorage()
    commit(storage, 1)
    plan(storage, 3, action, clustering_plan("a"))
    view = TableView.load(storage)
    assert view.clustering == {("p", "a"): t(3)}
    assert not view.takes_inserts(("p", "a"))
    assert [each.file_id for each in view.slices({"p": [base("a", 1)]})] == ["a"]


def test_pending_compactions_begin_a_slice_and_are_told_apart_from_log_compactions() -> None:
    storage = InMemoryStorage()
    commit(storage, 1)
    plan(storage, 3, Action.COMPACTION, compaction_of("a"))
    plan(storage, 4, Action.LOG_COMPACTION, compaction_of("b"))
    commit(storage, 5, Action.DELTA_COMMIT)
    view = TableView.load(storage)
    assert (view.compacting, view.log_compacting) == ({("p", "a"): t(3)}, {("p", "b"): t(4)})
    log = f".a_{t(5)}.log.1_0-0-0"
    files = {"p": [base("a", 1), log]}
    assert view.every_slice(files)["p", "a"] == [
        FileSlice("p", "a", base("a", 1), t(1)),
        FileSlice("p", "a", None, t(3), (log,)),
    ]
    assert view.slices(files) == [FileSlice("p", "a", base("a", 1), t(1), (log,))]


def test_an_insert_overwrite_that_has_no_plan_yet_takes_nothing() -> None:
    storage = InMemoryStorage()
    plan(storage, 3, Action.REPLACE_COMMIT, b"")
    assert TableView.load(storage).clustering == {}


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING])
def test_a_plan_without_content_comes_later_or_never(action: Action) -> None:
    """It is named, for those who decide by plans, and read again by the next view."""
    storage = InMemoryStorage()
    plan(storage, 3, action, b"")
    before = TableView.load(storage)
    path = f".hoodie/timeline/{t(3)}.{action.value}.requested"
    assert before.unwritten == (path,)
    assert before.under_plans() == frozenset()
    written = clustering_plan("a") if action is Action.CLUSTERING else compaction_of("a")
    storage.replace(path, written)
    after = TableView.load(storage, before)
    assert after.unwritten == ()
    assert after.under_plans() == {("p", "a")}


def test_a_completed_replacecommit_without_content_is_waited_for() -> None:
    """Nobody knows which file groups it replaced."""
    storage = InMemoryStorage()
    plan(storage, 3, Action.REPLACE_COMMIT, b"")
    storage.create(f".hoodie/timeline/{t(3)}_{t(4)}.replacecommit", b"")
    with pytest.raises(TimelineConflictError, match="try again"):
        TableView.load(storage)


def test_a_plan_that_vanishes_while_it_is_read_is_listed_again() -> None:
    class Vanishing(InMemoryStorage):
        """The plan is rolled back between the listing and the reading."""

        def read(self, path: str) -> bytes:
            if path.endswith("clustering.requested"):
                self.delete(path)
            return super().read(path)

    storage = Vanishing()
    plan(storage, 3, Action.CLUSTERING, clustering_plan("a"))
    assert TableView.load(storage).timeline.instants == ()


def test_what_an_earlier_view_has_read_is_not_read_again() -> None:
    class Counting(InMemoryStorage):
        """Counts what is read."""

        def __init__(self) -> None:
            super().__init__()
            self.reads: list[str] = []

        def read(self, path: str) -> bytes:
            self.reads.append(path)
            return super().read(path)

    storage = Counting()
    commit(storage, 1, Action.CLUSTERING, replaces("a"))
    plan(storage, 3, Action.CLUSTERING, clustering_plan("b"))
    first = TableView.load(storage)
    commit(storage, 4, Action.REPLACE_COMMIT, replaces("c"))
    storage.reads.clear()
    second = TableView.load(storage, first)
    assert [path.rpartition("/")[2] for path in storage.reads] == [f"{t(4)}_{t(5)}.replacecommit"]
    assert (set(second.replaced), set(second.clustering)) == ({("p", "a"), ("p", "c")}, {("p", "b")})
    assert second == TableView.load(storage)
