"""`tidemark table rebuild-index`, killed at each step of its switch, and while others start or write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Never

import pytest

import tests.simulation.commit_path as commit_path_module
import tests.simulation.scripted_tagger as tagger_module
from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.scripted_tagger import SHARDS, TABLE
from tests.unit.index_rebuilds import KilledError, killed_at
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.offline import index_rebuild
from tidemark.commit_coordinator.offline.index_rebuild import (
    Build,
    BuildRequest,
    RebuiltIndex,
    look_before,
    rebuild_index,
)
from tidemark.commit_coordinator.opening.takeover import settle_rebuild, take_over
from tidemark.config import TableConfigFile
from tidemark.hudi_format.errors import CorruptFileError, TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.locate import open_publication, read_lock
from tidemark.hudi_format.table_services.rebuilding.documents import (
    ShardFile,
    begun_rebuild,
    whole_build,
)
from tidemark.hudi_format.table_services.rebuilding.switching import RebuildFailpoint
from tidemark.ledger_client.errors import SupersededError
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.stream_runtime.kafka.ports import TopicSpec
from tidemark.stream_writer.index_rebuild import RebuildJob, encode_job, job_work, run_rows, run_shards
from tidemark.table_verification.verify import verify_table

WANTED = 5
Hit = Callable[[RebuildFailpoint], None]


@pytest.fixture
def path(path: CommitPath) -> CommitPath:
    """The table has an epoch, and nobody runs."""
    path.client.admin().create_topics([TopicSpec(path.topics.tombstones, 1)])
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    return path


Pieces = list[tuple[int, bytes]]


def built_here(path: CommitPath, shuffled: Callable[[Pieces], Pieces] = lambda pieces: pieces) -> Build:
    """Both halves of the Spark job, without Spark: two tasks each. ``shuffled``: what becomes of the pieces
    between them.
    """

    def build(request: BuildRequest) -> Sequence[ShardFile]:
        plan = request.plan
        paths = tuple(plan.shard_path(shard) for shard in range(plan.shards))
        job = encode_job(
            RebuildJob(
                path.storage.base_uri, TABLE, request.schema, plan.instant, paths, request.token, 32 << 20
            )
        )
        work = job_work(plan.slices, 2)
        pieces = shuffled([piece for slices in work for piece in run_rows(job, slices)])
        documents = [
            document
            for task in range(2)
            for document in run_shards(job, task, 2, [each for each in pieces if each[0] % 2 == task])
        ]
        return whole_build(documents, plan.shards, len(work))

    return build


def rebuilt(
    path: CommitPath, config: TableConfigFile, hit: Hit = lambda _: None, build: Build | None = None
) -> RebuiltIndex:
    look_before(config, path.client, path.storage, WANTED)
    return rebuild_index(
        config, path.client, path.storage, path.clock, path.ids, WANTED, build or built_here(path),
        lambda _: None, hit,
    )  # fmt: skip


def start(path: CommitPath) -> int:
    """What a coordinator does first, with the number of shards that it finds; returns that number."""
    reader = path.fold_reader()
    reader.catch_up()
    topic = path.topics.epochs
    log = DecisionsLog(path.client, topic, f"{TABLE}-coordinator", reader, path.clock, lambda _: None)
    found = MetadataTableSnapshot.load(path.storage).num_shards
    publication = open_publication(path.storage, path.clock, path.ids)
    ledger = known_ledger_id(path.storage)
    term = take_over(publication, log, lambda: reader.fold, path.ids.uuid(), ledger, found)
    settle_rebuild(term, reader.fold.state.shards)
    log.close()
    return found


def check_goes_on(path: CommitPath, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline starts, claims the number of the index that is there, and commits the second epoch."""
    monkeypatch.setattr(commit_path_module, "SHARDS", shards)
    monkeypatch.setattr(tagger_module, "SHARDS", shards)
    assert start(path) == shards == path.state().shards
    assert begun_rebuild(path.storage) is None
    second_epoch(path)
    path.run_until_idle()
    check_end(path)
    found = verify_table(path.storage, lambda _: None)
    assert found.agrees, found.findings


def test_a_rebuilt_index_is_claimed_and_written_on(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rows = path.record_index(), path.rows()
    done = rebuilt(path, config)
    assert (done.former, done.shards, done.entries) == (SHARDS, WANTED, len(rows))
    assert (path.record_index(), path.rows()) == (before, rows)
    assert read_lock(path.storage) is None
    assert begun_rebuild(path.storage) is None
    check_goes_on(path, WANTED, monkeypatch)


@pytest.mark.parametrize("place", RebuildFailpoint)
def test_after_a_kill_at_each_step_the_pipeline_starts_on_a_whole_index(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch, place: RebuildFailpoint
) -> None:
    start(path)
    with pytest.raises(KilledError):
        rebuilt(path, config, killed_at(place))
    is_before = place in (
        RebuildFailpoint.AFTER_REBUILD_NOTED,
        RebuildFailpoint.AFTER_INDEX_LIFE,
        RebuildFailpoint.AFTER_EACH_SHARD_FILE,
    )
    check_goes_on(path, SHARDS if is_before else WANTED, monkeypatch)


def test_after_a_kill_the_command_is_repeated(path: CommitPath, config: TableConfigFile) -> None:
    start(path)
    for place in (RebuildFailpoint.AFTER_EACH_SHARD_FILE, RebuildFailpoint.AFTER_INDEX_SWITCHED):
        with pytest.raises(KilledError):
            rebuilt(path, config, killed_at(place))
    assert rebuilt(path, config).shards == WANTED == path.state().shards
    assert verify_table(path.storage, lambda _: None).agrees


def test_what_is_tagged_and_not_committed_is_tagged_anew(path: CommitPath, config: TableConfigFile) -> None:
    second_epoch(path)
    assert path.state().tagged
    rebuilt(path, config)
    assert not path.state().tagged
    assert path.state().generation == 1


def test_a_coordinator_that_starts_meanwhile_keeps_its_table(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = built_here(path)

    def started_meanwhile(request: BuildRequest) -> Sequence[ShardFile]:
        files = build(request)
        start(path)
        return files

    with pytest.raises(SupersededError, match="a coordinator started while the index was rebuilt"):
        rebuilt(path, config, build=started_meanwhile)
    check_goes_on(path, SHARDS, monkeypatch)


def test_what_another_engine_commits_meanwhile_throws_the_new_index_away(
    path: CommitPath, config: TableConfigFile
) -> None:
    build = built_here(path)

    def committed_meanwhile(request: BuildRequest) -> Sequence[ShardFile]:
        OtherEngine(path.storage, path.clock, path.action).commit()
        return build(request)

    with pytest.raises(TimelineConflictError, match="another writer changed the table"):
        rebuilt(path, config, build=committed_meanwhile)
    assert MetadataTableSnapshot.load(path.storage).num_shards == SHARDS
    assert read_lock(path.storage) is None
    assert rebuilt(path, config).shards == WANTED


@pytest.mark.parametrize(
    "shuffled",
    [lambda pieces: pieces[1:], lambda pieces: [*pieces, pieces[0]]],
    ids=["lost", "twice"],
)
def test_what_is_lost_or_doubled_between_rows_and_files_keeps_the_former_index(
    path: CommitPath, config: TableConfigFile, shuffled: Callable[[Pieces], Pieces]
) -> None:
    before = path.record_index()
    with pytest.raises((CorruptFileError, UnsupportedTableError)):
        rebuilt(path, config, build=built_here(path, shuffled))
    assert (MetadataTableSnapshot.load(path.storage).num_shards, path.record_index()) == (SHARDS, before)
    assert begun_rebuild(path.storage) is None


@pytest.mark.parametrize("killed", ["plan_rebuild", "_switch", "build", "settle_rebuild"])
def test_after_a_kill_outside_of_the_switch_the_pipeline_starts_on_a_whole_index(
    path: CommitPath, config: TableConfigFile, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Before anything is built, while it is built, between build and switch, and behind the last claim."""
    start(path)

    def kill(*arguments: object) -> Never:
        raise KilledError(killed)

    if killed == "settle_rebuild":
        calls: Iterator[Callable[..., object]] = iter([settle_rebuild, kill])
        monkeypatch.setattr(index_rebuild, killed, lambda *arguments: next(calls)(*arguments))
    elif killed != "build":
        monkeypatch.setattr(index_rebuild, killed, kill)
    with pytest.raises(KilledError):
        rebuilt(path, config, build=kill if killed == "build" else None)
    monkeypatch.undo()
    is_new = killed == "settle_rebuild"
    assert (begun_rebuild(path.storage) is not None) == is_new
    check_goes_on(path, WANTED if is_new else SHARDS, monkeypatch)


def test_fewer_shards_are_refused_before_anything_is_claimed(
    path: CommitPath, config: TableConfigFile
) -> None:
    with pytest.raises(UnsupportedTableError, match="cannot get fewer"):
        look_before(config, path.client, path.storage, SHARDS - 1)
