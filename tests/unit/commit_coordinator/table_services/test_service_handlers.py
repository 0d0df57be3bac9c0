"""Handlers of table services on real files: what each kind does to a table, what readers see when a
coordinator dies at any step, and how a successor goes on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.read_table import ReadTable
from tests.service_actions import EVERYTHING_NOW, DiedError
from tests.unit.commit_coordinator.table_services.story import HOUR_S, Story, plain
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services import cleans, compactions
from tidemark.commit_coordinator.table_services.handler import ServiceFacts
from tidemark.config.table_services_model import (
    DataCompactionConfig,
    IndexCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import completed_file, create_requested
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import (
    decode_commit_metadata,
    encode_commit_metadata,
    group_stats,
)
from tidemark.hudi_format.timeline.service_records import RequestedCompaction, encode_compaction_plan

COMPACTIONS = (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA)
CLEANS = (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX)


def prepare_for(story: Story, kind: ServiceKind) -> None:
    """Makes something to do for the kind."""
    if kind in CLEANS:
        assert all(story.served.act(each) for each in COMPACTIONS)
        story.later()
    story.served.list_files()


@pytest.fixture(scope="module")
def three_commits(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("three_commits") / "t")


@pytest.fixture
def story(three_commits: Story, tmp_path: Path) -> Story:
    return three_commits.copy(tmp_path / "t")


def test_a_data_compaction_leaves_no_log_files_and_the_same_rows(story: Story):
    assert story.log_files() > 0
    assert story.served.act(ServiceKind.COMPACT_DATA)
    assert story.log_files() == 0
    story.check()
    newest = {(each.partition_path, each.file_id): each for each in ReadTable(story.path).slices()}
    for partition, file_id, size in story.served.placement.slices():
        base = newest[partition, file_id].base_file
        assert size == story.storage.stat(join_path(partition, str(base))).size
    story.commit((1, 5, 30))
    story.check()


def test_an_index_compaction_takes_every_group_with_log_files(story: Story):
    assert story.index_log_files() > 0
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    assert story.index_log_files() == 0
    story.check()
    story.commit((1, 5, 30), deletes=(9,))
    story.check()
    assert not story.served.state.services


@pytest.mark.parametrize("kind", COMPACTIONS)
def test_a_plan_corrects_figures_that_another_engines_compaction_made_old(story: Story, kind: ServiceKind):
    """Else the group would seem due for ever, and be compacted again and again."""
    placement, is_index = story.served.placement, kind is ServiceKind.COMPACT_INDEX
    story.served.list_files()
    right = placement.snapshot()
    of_kind = right.index if is_index else right.data
    placement.listed([replace(each, log_count=900, log_bytes=1 << 30) for each in of_kind], is_index=is_index)
    assert story.served.plan(kind)
    now = placement.snapshot()
    assert {each.group: each for each in (now.index if is_index else now.data)} == {
        each.group: each for each in of_kind
    }


@pytest.mark.parametrize("kind", CLEANS)
def test_a_clean_deletes_superseded_files_once_readers_are_gone(story: Story, kind: ServiceKind):
    assert not story.served.act(kind), "nothing is superseded"
    assert all(story.served.act(each) for each in COMPACTIONS)
    story.commit((5,))
    story.later()
    before = story.table_files()
    assert story.served.act(kind)
    assert len(story.table_files()) < len(before)
    story.check()
    assert not story.served.act(kind)
    story.commit((6, 31))
    story.check()


def test_a_successor_leaves_the_groups_of_its_own_pending_compaction_to_nobody(story: Story):
    """Its predecessor died when the plan was on the timeline: backpressure has to count them."""
    kind, served = ServiceKind.COMPACT_DATA, story.served
    before = {(stats.group, stats.log_count) for stats in served.placement.snapshot().data}
    served.dies_at(CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT)
    with pytest.raises(DiedError):
        served.act(kind)
    served.begin()
    served.list_files()
    seen = served.placement.snapshot()
    assert {(stats.group, stats.log_count) for stats in seen.data} == before
    assert TableView.load(served.storage).under_plans()
    assert not seen.held
    assert served.finish(kind)
    assert not any(stats.log_count for stats in served.placement.snapshot().data)


def test_readers_keep_their_files_for_the_retention(story: Story):
    hour = replace(EVERYTHING_NOW, clean=replace(EVERYTHING_NOW.clean, retain_ms=3_600_000))
    story.served.config = hour
    story.served.begin()
    assert story.served.act(ServiceKind.COMPACT_DATA)
    story.pass_by(HOUR_S - 60)
    assert not story.served.act(ServiceKind.CLEAN_DATA)
    story.pass_by(120)
    assert story.served.act(ServiceKind.CLEAN_DATA)


def test_copy_on_write_tables_are_cleaned(tmp_path: Path):
    story = Story(tmp_path / "made", TableType.COPY_ON_WRITE).copy(tmp_path / "t")
    story.later()
    files = {name for names in story.listed_folders().values() for name in names}
    assert story.served.act(ServiceKind.CLEAN_DATA)
    left = {name for names in story.listed_folders().values() for name in names}
    assert len(files) - len(left) == 4, "two groups, each rewritten twice"
    story.check()


def test_a_look_through_many_partitions_is_cut_into_steps(story: Story, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cleans, "LOOK_S", -1.0)
    prepare_for(story, ServiceKind.CLEAN_DATA)
    before = story.table_files()
    gone = []
    for _ in ("eu", "us"):
        assert story.served.act(ServiceKind.CLEAN_DATA)
        gone.append({path.partition("/")[0] for path in before - story.table_files()})
    assert gone == [{"eu"}, {"eu", "us"}]
    assert not story.served.act(ServiceKind.CLEAN_DATA)
    story.check()


def crashes() -> list[tuple[ServiceKind, CoordinatorFailpoint]]:
    """The failpoints that handlers pass themselves."""
    compactions = {CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE}
    of_data = {CoordinatorFailpoint.AFTER_SERVICE_METADATA}
    sweeps = {CoordinatorFailpoint.IN_SWEEP}
    every = {
        CoordinatorFailpoint.AFTER_SERVICE_REQUESTED,
        CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT,
        CoordinatorFailpoint.AFTER_SERVICE_COMPLETED,
    }
    found = []
    for kind in (*COMPACTIONS, *CLEANS):
        points = every | compactions | of_data | sweeps
        points -= sweeps if kind in COMPACTIONS else compactions
        points -= of_data if kind in (ServiceKind.COMPACT_INDEX, ServiceKind.CLEAN_INDEX) else set()
        found += [(kind, point) for point in sorted(points)]
    return found


@pytest.mark.parametrize(("kind", "failpoint"), crashes())
def test_readers_are_right_at_every_death_and_the_successor_finishes(
    story: Story, kind: ServiceKind, failpoint: CoordinatorFailpoint
):
    prepare_for(story, kind)
    served = story.served
    served.dies_at(failpoint.value)
    with pytest.raises(DiedError):
        served.act(kind)
    story.check()
    served.begin()
    assert served.finish(kind)
    story.commit((7, 40), deletes=(1,))
    served.list_files()
    assert served.act(kind) == (kind in COMPACTIONS)
    story.check()


@pytest.mark.parametrize("kind", COMPACTIONS)
def test_a_commit_between_plan_and_decision_stays(story: Story, kind: ServiceKind):
    served = story.served
    assert served.plan(kind)
    report = served.work(kind)
    story.pass_by(1.0)
    story.commit((2, 50), deletes=(3,))
    assert served.decide(kind, report)
    assert served.sweep(kind)
    story.check()
    left = story.log_files() if kind is ServiceKind.COMPACT_DATA else story.index_log_files()
    assert left > 0, "its log files are of the new slice"


@pytest.mark.parametrize("nth", [0, 1, 2])
@pytest.mark.parametrize("kind", COMPACTIONS)
def test_a_compaction_that_is_taken_back_leaves_nothing(
    story: Story, kind: ServiceKind, nth: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compactions, "PUBLISHED_AT_ONCE", 1)
    served = story.served
    served.dies_at("after_each_service_file" if nth else "after_service_inflight", max(nth, 1))
    with pytest.raises(DiedError):
        served.act(kind)
    instant = served.state.services[kind].planned.instant
    served.begin()
    served.take_back(kind)
    story.check()
    assert not [info.path for info in story.storage.walk("") if instant in info.name]
    assert served.act(kind)
    story.check()


@pytest.mark.parametrize("kind", CLEANS)
def test_a_clean_that_is_taken_back_leaves_nothing(story: Story, kind: ServiceKind):
    prepare_for(story, kind)
    served = story.served
    served.dies_at("after_service_inflight")
    with pytest.raises(DiedError):
        served.act(kind)
    instant = served.state.services[kind].planned.instant
    served.begin()
    served.take_back(kind)
    story.check()
    assert not [info.path for info in story.storage.walk("") if instant in info.name]
    assert served.act(kind)


@pytest.mark.parametrize("kind", COMPACTIONS)
def test_base_files_of_a_dead_executor_go_before_ours_is_published(story: Story, kind: ServiceKind):
    """Truncated ones would make the metadata table unreadable once the instant is completed."""
    served = story.served
    served.dies_at("after_service_inflight")
    with pytest.raises(DiedError):
        served.act(kind)
    path = next(iter(served.decided(kind).tickets))
    theirs = path.replace("_0-0-0_", "_0-7-7_").replace("_1-0-0_", "_1-7-7_")
    assert theirs != path
    story.storage.create(theirs, b"cut off")
    served.begin()
    assert served.finish(kind)
    assert not story.storage.exists(theirs)
    story.check()


@pytest.mark.parametrize("kind", COMPACTIONS)
def test_our_files_go_when_another_engine_completed_the_instant(story: Story, kind: ServiceKind):
    """It rolled our inflight instant back, executed the plan anew, and named its own files."""
    served = story.served
    served.dies_at("after_service_completed")
    with pytest.raises(DiedError):
        served.act(kind)
    action = served.decided(kind)
    root = METADATA_TABLE_ROOT if kind is ServiceKind.COMPACT_INDEX else DATA_ROOT
    completed = join_path(root, "timeline", str(completed_file(story.storage, action.planned.instant, root)))
    metadata = decode_commit_metadata(story.storage.read(completed), completed)
    first = metadata.stats()[0]
    theirs = replace(first, path=first.path.replace("-0-0_", "-9-9_"))
    folder = METADATA_TABLE_PATH if kind is ServiceKind.COMPACT_INDEX else ""
    ours = join_path(folder, first.path)
    story.storage.create(join_path(folder, theirs.path), story.storage.read(ours))
    others = [stat for stat in metadata.stats() if stat != first]
    renamed = replace(metadata, write_stats=group_stats([theirs, *others]))
    story.storage.replace(completed, encode_commit_metadata(renamed))
    served.begin()
    assert served.handlers[kind].sweep(served.context, action, True, 0)
    assert not story.storage.exists(ours)
    assert story.storage.exists(join_path(folder, theirs.path))
    assert all(story.storage.exists(join_path(folder, stat.path)) for stat in others)
    assert plain(story.hudi_rows(story.listed_folders())) == story.live


def test_an_operator_gets_a_compaction_that_is_not_due(story: Story):
    served = story.served
    served.config = replace(TableServicesConfig(), compact_data=DataCompactionConfig(log_ratio=100.0))
    served.begin()
    assert not served.act(ServiceKind.COMPACT_DATA)
    assert served.act(ServiceKind.COMPACT_DATA, asked=True)
    assert story.log_files() == 0
    story.check()


def test_what_is_due_is_told_by_figures_in_memory(story: Story):
    facts = ServiceFacts(story.served.state, {})
    now_ms = story.clock.now_ms()
    handlers = story.served.handlers
    assert "file groups" in str(handlers[ServiceKind.COMPACT_DATA].due(facts, now_ms))
    assert "log files have" in str(handlers[ServiceKind.COMPACT_INDEX].due(facts, now_ms))
    for kind in COMPACTIONS:
        assert handlers[kind].due(facts, now_ms), "the round before may have had no turn for a plan"
    for kind in (*CLEANS, ServiceKind.ROLLBACK):
        assert handlers[kind].due(facts, now_ms) is not None
        ended = ServiceFacts(story.served.state, {kind: now_ms})
        assert handlers[kind].due(ended, now_ms + 1_000) is None
    story.served.act(ServiceKind.COMPACT_DATA)
    assert handlers[ServiceKind.COMPACT_DATA].due(facts, now_ms + 60_000) is None, "nothing is left"


@pytest.mark.parametrize("kind", COMPACTIONS)
def test_compactions_that_do_not_keep_up_follow_each_other_at_once(story: Story, kind: ServiceKind):
    served, now_ms = story.served, story.clock.now_ms()
    index, data = IndexCompactionConfig(log_files=1), DataCompactionConfig(log_files=1)
    served.config = replace(TableServicesConfig(), compact_index=index, compact_data=data)
    served.begin()
    served.list_files()
    ended = {kind: now_ms - 1_000}
    assert served.handlers[kind].due(ServiceFacts(served.state, ended), now_ms) is None
    assert served.handlers[kind].due(ServiceFacts(served.state, ended, frozenset({kind})), now_ms + 2_000)


def test_a_kind_that_is_switched_off_is_never_due_and_an_operator_still_gets_it(story: Story):
    served = story.served
    text = "compact_index compact_data clean rollback archive"
    off = {name: replace(getattr(EVERYTHING_NOW, name), enabled=False) for name in text.split()}
    served.config = replace(EVERYTHING_NOW, **off)
    served.begin()
    facts, now_ms = ServiceFacts(served.state, {}), story.clock.now_ms()
    assert {handler.due(facts, now_ms) for handler in served.handlers.values()} == {None}
    assert served.act(ServiceKind.COMPACT_INDEX, asked=True)


def test_an_operator_is_told_what_holds_the_index_up(story: Story):
    """Another engine's compaction of it that is planned, and that any of its writes will execute."""
    plan = encode_compaction_plan(RequestedCompaction(operations=()))
    instant = instant_from_ms(story.clock.now_ms())
    create_requested(Unfenced(story.storage), instant, Action.COMPACTION, plan, root=METADATA_TABLE_ROOT)
    assert not story.served.act(ServiceKind.COMPACT_INDEX)
    assert "another engine is about to compact the metadata table" in story.served.dropped
