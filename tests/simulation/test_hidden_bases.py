"""Another engine's index hides base files of the metadata table: the coordinator rewinds once, and goes on.

What is put back, and that it counts again, is in tests/unit/commit_coordinator/table_services.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.kept_secondary import NAME, changes, define, switch_on
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.test_other_engines import tag_anew
from tests.simulation.test_unfinished_index import second_written
from tidemark.commit_coordinator.commit import hidden_bases
from tidemark.commit_coordinator.commit.hidden_bases import REWIND_OWED
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, ArchivedInstant
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

ROW = ArchivedInstant("20260101000000000", "20260101000000001", "commit", b"", b"plan")


class Hidden:
    """An archive with one compaction whose base file is hidden; ``done``: what became of it, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(hidden_bases, "hidden_bases", self.rows)
        self.lost: dict[str, list[str]] = {}
        monkeypatch.setattr(hidden_bases, "compacted_without", lambda *_: self.lost)
        monkeypatch.setattr(hidden_bases, "unhide", self.unhide)
        monkeypatch.setattr(hidden_bases, "renew_index_life", lambda _: self.done.append("another life"))

    def rows(self, storage: Storage, *, also_half: bool) -> list[ArchivedInstant]:
        return [] if "put back" in self.done else [ROW]

    def unhide(self, by: Term, hidden: Sequence[ArchivedInstant]) -> None:
        by.lock.check()
        self.done += ["put back"] * len(hidden)


@pytest.mark.parametrize("dies", [False, True])
def test_a_build_that_hides_base_files_is_followed_by_one_rewind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    path, hidden = second_written(tmp_path), Hidden(monkeypatch)
    define(path.storage, "v")
    switch_on(path.storage, 2, at=InstantGenerator(path.clock).next())
    while "put back" not in hidden.done:
        path.step()
        path.clock.advance(1)
    if dies:
        path.crash()
    tag_anew(path, 1)
    assert path.state().committed.epoch == 1, "what was tagged meanwhile counts no more"
    path.run_until_idle()
    assert hidden.done == ["put back"] + ["another life"] * (1 + dies)
    assert not path.storage.exists(REWIND_OWED)
    assert (path.state().generation, path.state().committed.epoch) == (1, 2)
    check_end(path)


@pytest.mark.parametrize("dies", [False, True])
def test_indexes_that_were_compacted_without_hidden_files_are_taken_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Queries by the secondary index would lose rows, and so would filters on the column of the stats."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True, stats=["v"])
    switch_on(path.storage, 2)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    hidden = Hidden(monkeypatch)
    hidden.lost = {NAME: ["secondary-index-by-value-0000-0_1"], "column_stats": ["col-stats-0000-0_1"]}
    build_by_another(path)
    while "put back" not in hidden.done:
        path.step()
        path.clock.advance(1)
    told = dict(path.context.indexes_taken_out) if path.context is not None else {}
    if dies:
        path.crash()
    tag_anew(path, 1)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert read_table_config(path.storage).metadata_partitions == {"files", "record_index"}
    assert NAME not in read_index_definitions(path.storage)
    assert changes(path.storage, str(path.state().committed.instant)) == set()
    assert told.keys() == {NAME}
    assert "secondary-index-by-value-0000-0_1 lacks entries" in told[NAME].reason
    assert "`tidemark index create by_value --column v` makes it again" in told[NAME].reason
    assert path.context is not None
    stats = path.context.taken_out
    assert stats is not None
    assert stats.names == "column_stats"
    assert "compacted it without them" in stats.reason
    check_end(path)


def build_by_another(path: CommitPath) -> None:
    """What completes on the metadata table's timeline when another engine adds an index."""
    instant, by = "00000000000000042", Unfenced(path.storage)
    requested = create_requested(by, instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    done = encode_commit_metadata(CommitMetadata())
    complete(by, inflight, InstantGenerator(path.clock).next(), done, root=METADATA_TABLE_ROOT)


def test_an_epoch_without_rows_is_the_first_plan_of_a_term(tmp_path: Path) -> None:
    """It takes no lock for itself, and the look needs it."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    for epoch in (1, 2):
        path.tagger.tag([], 1)
        path.run_until_idle()
        assert path.state().committed.epoch == epoch
        path.crash()


def test_a_term_that_begins_with_an_epoch_without_rows_puts_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its delete of a key that nobody found may be of a key that is hidden."""
    path, hidden = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True), Hidden(monkeypatch)
    path.tagger.tag([], 1)
    while "put back" not in hidden.done:
        path.step()
        path.clock.advance(1)
    while path.state().generation == 0:
        path.step()
    assert hidden.done == ["put back", "another life"]
    assert (path.state().committed.epoch, path.state().tagged) == (0, [])


def test_a_rewind_that_is_owed_is_made_where_the_build_was_archived_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_bases, "newest_build", lambda _: "")
    path = second_written(tmp_path)
    path.storage.create(REWIND_OWED, b"20260101000000000")
    path.crash()
    tag_anew(path, 1)
    path.run_until_idle()
    assert (path.state().generation, path.state().committed.epoch) == (1, 2)
    assert not path.storage.exists(REWIND_OWED)
    check_end(path)
