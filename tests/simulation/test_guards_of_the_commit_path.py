"""Guards that nothing else reaches: each test fails when the one line that it names is removed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from tests.simulation.commit_path import CommitPath
from tests.simulation.configured_path import config_of
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import GROUP_A, GROUP_B, check_end, first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import TABLE
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.offline.recovery import recover
from tidemark.commit_coordinator.opening.takeover import take_over
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.errors import LockLostError
from tidemark.hudi_format.publication.folders import term_dir
from tidemark.hudi_format.publication.locate import open_publication
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.storage.base import FolderStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.ledger_client.errors import SupersededError


def path_at_second_report(folder: Path) -> CommitPath:
    """The first epoch is committed, the second one reported."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    path.write_open_attempt()
    return path


def lose_lock_at(path: CommitPath, place: CoordinatorFailpoint) -> None:
    """When the coordinator comes there, its lock is deleted and another engine takes it."""
    context = path.context
    assert context is not None
    hit = context.hit

    def losing(reached: CoordinatorFailpoint) -> None:
        hit(reached)
        if reached is place and path.storage.exists(LOCK_PATH):
            path.storage.delete_tree(LOCK_PATH)
            path.storage.create(LOCK_PATH, b"")

    context.hit = losing


@pytest.mark.parametrize(
    ("place", "root", "what"),
    [
        (CoordinatorFailpoint.BEFORE_METADATA_COMPLETED, METADATA_TABLE_ROOT, "the metadata commit"),
        (CoordinatorFailpoint.AFTER_METADATA_COMMIT, ".hoodie", "the data commit"),
    ],
)
def test_neither_commit_is_completed_without_the_lock(
    tmp_path: Path, place: CoordinatorFailpoint, root: str, what: str
) -> None:
    """`context.lock.check()` before each completion: another engine may be writing by then."""
    path = path_at_second_report(tmp_path)
    path.step_coordinator()
    decided = path.state().decided
    assert decided is not None
    lose_lock_at(path, place)
    path.step_coordinator()
    completed = [each.completion for each in load_timeline(path.storage, root).completed()]
    times = {METADATA_TABLE_ROOT: decided.metadata_completion, ".hoodie": decided.data_completion}
    assert times[root] not in completed, what
    assert path.state().committed.epoch == 1


def test_nothing_is_decided_without_the_lock(tmp_path: Path) -> None:
    """`context.lock.check()` before the decision is appended."""
    path = path_at_second_report(tmp_path)
    lose_lock_at(path, CoordinatorFailpoint.BEFORE_COMMIT_DECIDED)
    path.step_coordinator()
    assert path.state().decided is None


def test_a_decided_instant_that_archival_passed_by_is_not_guessed_about(tmp_path: Path) -> None:
    """`_check_standing` asks `is_archived`: the timeline starts behind our instant, which is on none of its
    sides. Whether it was committed nobody can tell, so nothing is completed, taken back or written again.
    """
    path = path_at_second_report(tmp_path)
    path.step_coordinator()
    decided, state = path.state().decided, path.state()
    assert decided is not None
    assert state.planned is not None
    path.clock.advance(1.0)
    OtherEngine(path.storage, path.clock, path.action).commit()
    for info in path.storage.list(".hoodie/timeline"):
        if info.name[:17].isdigit() and info.name[:17] <= (state.planned.instant or ""):
            path.storage.delete(info.path)
    files = path.files()
    with pytest.raises(DivergedError, match="lies before the timeline's start"):
        path.step_coordinator()
    assert (path.state().decided, path.state().voided) == (decided, state.voided)
    assert path.files().items() >= files.items()


def test_recover_refuses_the_ledger_of_another_table(tmp_path: Path) -> None:
    """`check_agreement` in `recover`: the timeline holds an epoch that these topics never heard of."""
    path = CommitPath(tmp_path / "table", TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    other = CommitPath(tmp_path / "other", TableType.MERGE_ON_READ, ordered=True)
    # A ledger that has seen more coordinators than this table: its terms meet none of the table's folders.
    for _ in range(6):
        other.start_coordinator()
        other.crash()
    config = config_of(path, tmp_path)
    with pytest.raises(DivergedError, match=r"epoch 1 .*the decisions end with epoch 0"):
        recover(config, other.client, path.storage, path.clock, path.ids)


class _FrozenAfterItsClaim(DecisionsLog):
    """Between its claim and its folder a successor of `path` claims and ends its term."""

    path: CommitPath

    def claim(
        self, owner: str, ledger: str = "", location: TableLocation | None = None, shards: int = 0
    ) -> int:
        term = super().claim(owner, ledger, location, shards)
        self.path.start_coordinator()
        return term


def test_a_coordinator_that_was_replaced_while_it_took_over_stops(tmp_path: Path) -> None:
    """The second `catch_up` of `take_over`: else its term's folder is a door that nobody closes."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    reader = path.fold_reader()
    log = _FrozenAfterItsClaim(
        path.client, path.topics.epochs, f"{TABLE}-coordinator", reader, path.clock, lambda _: None
    )
    log.path = path
    with pytest.raises(SupersededError):
        take_over(open_publication(path.storage, path.clock, path.ids), log, lambda: reader.fold, "frozen")
    successor = path.context
    assert successor is not None
    assert successor.term > log.term
    assert path.storage.exists(term_dir(successor.term))
    second_epoch(path)
    path.run_until_idle()
    check_end(path)


class _InAFolderOfAnotherLedger(DecisionsLog):
    """A ledger begun anew by hand: its first claims have the numbers of terms that the folder knows."""

    storage: FolderStorage

    def claim(
        self, owner: str, ledger: str = "", location: TableLocation | None = None, shards: int = 0
    ) -> int:
        term = super().claim(owner, ledger, location, shards)
        self.storage.make_dir(term_dir(term), exclusive=True)
        return term


def test_a_term_whose_folder_another_ledger_made_is_refused_with_the_way_on(tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    reader = path.fold_reader()
    log = _InAFolderOfAnotherLedger(
        path.client, path.topics.epochs, f"{TABLE}-coordinator", reader, path.clock, lambda _: None
    )
    log.storage = path.storage
    with pytest.raises(DivergedError, match=r"terms/\d+' exists already.*another ledger.*adopt --new-ledger"):
        take_over(open_publication(path.storage, path.clock, path.ids), log, lambda: reader.fold, "second")


def test_every_row_of_a_commit_has_a_sequence_number_of_its_own(tmp_path: Path) -> None:
    """`_rows_written` of a data task: one number over all the file groups that the task writes."""
    for table_type in TableType:
        path = CommitPath(tmp_path / table_type.name, table_type, ordered=True)
        groups = {"d1": GROUP_A, "d2": GROUP_B}
        for version in (1, 2):
            operation = DataOp.INSERT if version == 1 else DataOp.UPDATE
            path.tag(
                [
                    (row(f"{day}-{number}", version, version, day), operation, group)
                    for day, group in groups.items()
                    for number in range(5)
                ]
            )
            path.run_until_idle()
            numbers = sequence_numbers(path)
            assert len(numbers) == 10
            assert len(set(numbers)) == 10, numbers


def sequence_numbers(path: CommitPath) -> list[str]:
    """`_hoodie_commit_seqno` of all live rows, as hudi-rs reads them."""
    table = HudiTableBuilder.from_base_uri(path.storage.base_uri).build()
    rows = [each for batch in table.read() for each in pa.table(batch).to_pylist()]
    return [each["_hoodie_commit_seqno"] for each in rows]


def test_a_lock_that_is_lost_is_told_as_lost(tmp_path: Path) -> None:
    """What the guards above rest on."""
    path = path_at_second_report(tmp_path)
    context = path.context
    assert context is not None
    context.lock.acquire(1_000)
    path.storage.delete_tree(LOCK_PATH)
    path.storage.create(LOCK_PATH, b"")
    with pytest.raises(LockLostError):
        context.lock.check()
