"""Another engine builds an index on a table whose record index has base files of archived compactions: they
do not count any more, until a coordinator puts their instants back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.commit_coordinator.table_services.archived_bases import (
    BUILT,
    assert_instants_are_whole,
    bases_that_count,
    build_of_another_index,
    check_hidden,
    rows_updated_alone,
)
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    active,
)
from tidemark.commit_coordinator.commit import hidden_bases as looked
from tidemark.commit_coordinator.commit.hidden_bases import REWIND_OWED, HiddenBases
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import delete_pending
from tidemark.hudi_format.errors import HiddenBaseFilesError, UnsupportedTableError
from tidemark.hudi_format.metadata_table.archived_bases import hidden_bases
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit
from tidemark.hudi_format.metadata_table.index_life import index_life
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.tickets import Lease, Ticket
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.instant import requested_in


@pytest.fixture(scope="module")
def archived_bases(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return rows_updated_alone(tmp_path_factory.mktemp("hidden"))


@pytest.fixture
def hidden(archived_bases: Story, tmp_path: Path) -> Story:
    """Behind the other engine's build."""
    story = archived_bases.copy(tmp_path / "t")
    build_of_another_index(story, completion=story.writer._instants.next())
    assert bases_that_count(story) == 0, "the build hides them: else nothing is tested"
    return story


def test_a_build_that_is_pending_hides_them_as_well(archived_bases: Story, tmp_path: Path) -> None:
    """The timeline begins at its instant, whose builder may be dead. They are put back before anything is
    planned, and no second time when it has ended.
    """
    story = archived_bases.copy(tmp_path / "t")
    begin_delta_commit(Unfenced(story.storage), BUILT)
    assert bases_that_count(story) == 0, "it hides them: else nothing is tested"
    bases = HiddenBases()
    with pytest.raises(AttemptLostError, match=f"builds an index.*{BUILT} is pending"):
        check_hidden(story, bases, 7)
    assert bases_that_count(story) == 2
    check_hidden(story, bases, 8)
    delete_pending(story.storage, BUILT, Action.DELTA_COMMIT, METADATA_TABLE_ROOT)
    check_hidden(story, bases, 8)
    assert_instants_are_whole(story.storage)
    story.check()


def assert_whole(story: Story) -> None:
    """Readers find all, and each instant has its three files."""
    story.check()
    assert_instants_are_whole(story.storage)
    assert hidden_bases(story.storage, also_half=True) == []
    assert not story.storage.exists(REWIND_OWED)


def test_base_files_that_a_build_hid_count_again_behind_a_rewind(hidden: Story) -> None:
    bases, life = HiddenBases(), index_life(hidden.storage)
    for _ in range(2):
        with pytest.raises(AttemptLostError, match="another engine built an index") as lost:
            check_hidden(hidden, bases, generation=3)
        assert lost.value.rewind
        hidden.check()
    assert index_life(hidden.storage) != life, "what caches loaded meanwhile lacks entries"
    check_hidden(hidden, bases, generation=4)
    assert_whole(hidden)
    life = index_life(hidden.storage)
    check_hidden(hidden, bases, generation=4)
    check_hidden(hidden, HiddenBases(), generation=4)
    assert index_life(hidden.storage) == life, "caches are kept where nothing was hidden"


def test_a_successor_of_one_that_died_before_the_rewind_rewinds(hidden: Story) -> None:
    with pytest.raises(AttemptLostError):
        check_hidden(hidden, HiddenBases(), generation=3)
    hidden.storage.delete_tree(".hoodie/lock")
    hidden.served.begin()
    with pytest.raises(AttemptLostError) as lost:
        check_hidden(hidden, HiddenBases(), generation=3)
    assert lost.value.rewind


def test_a_second_build_before_the_rewind_is_looked_behind_as_well(hidden: Story) -> None:
    bases, rows = HiddenBases(), hidden_bases(hidden.storage, also_half=False)
    with pytest.raises(AttemptLostError):
        check_hidden(hidden, bases, generation=3)
    # An archival takes both: the first build, and the instants that were put back and are in the archive.
    timeline = f"{METADATA_TABLE_ROOT}/timeline"
    gone = {BUILT, *(row.requested for row in rows)}
    for name in hidden.storage.names(timeline):
        if name[0].isdigit() and requested_in(name) in gone:
            hidden.storage.delete(f"{timeline}/{name}")
    assert bases_that_count(hidden) == 2
    build_of_another_index(hidden, "00000000000000006", hidden.writer._instants.next())
    assert bases_that_count(hidden) == 0
    for generation in (3, 3, 3):
        with pytest.raises(AttemptLostError):
            check_hidden(hidden, bases, generation)
        hidden.check()
    check_hidden(hidden, bases, generation=4)
    assert_whole(hidden)


def test_other_writers_get_the_lock_between_some_that_are_put_back(
    hidden: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looked, "_AT_ONCE", 1)
    bases, lacking = HiddenBases(), len(hidden_bases(hidden.storage, also_half=False))
    assert lacking > 1
    for _ in range(lacking - 1):
        with pytest.raises(HiddenBaseFilesError, match="to go"):
            check_hidden(hidden, bases, generation=3)
    with pytest.raises(AttemptLostError):
        check_hidden(hidden, bases, generation=3)
    check_hidden(hidden, bases, generation=4)
    assert_whole(hidden)


@pytest.mark.parametrize("later", ["", "00000000000000006"], ids=["one build", "another one, pending"])
def test_a_table_whose_index_was_compacted_without_its_hidden_files_is_not_served(
    hidden: Story, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """As another engine does it behind its build: what it passed over is in no newer base file. ``later``: it
    died in the next build.
    """
    hidden.commit((100, 101))
    hidden.commit((102, 103))
    with monkeypatch.context() as other_engine:
        other_engine.setattr(HiddenBases, "put_back", lambda *_: "")
        other_engine.setattr(HiddenBases, "is_due", lambda *_: False)
        assert hidden.served.act(ServiceKind.COMPACT_INDEX)
    if later:
        begin_delta_commit(Unfenced(hidden.storage), later)
    with pytest.raises(
        UnsupportedTableError, match=r"compacted the record index without them.*rebuild-index"
    ):
        check_hidden(hidden, HiddenBases(), generation=3)


def test_a_table_without_a_build_or_without_hidden_files_is_left_alone(
    archived_bases: Story, tmp_path: Path
) -> None:
    story = archived_bases.copy(tmp_path / "t")
    life, before = index_life(story.storage), active(story, METADATA_TABLE_ROOT)
    check_hidden(story, HiddenBases(), generation=0)
    assert (index_life(story.storage), active(story, METADATA_TABLE_ROOT)) == (life, before)


def test_a_compaction_of_the_index_merges_hidden_base_files(hidden: Story) -> None:
    """Without them it would write base files that lack their entries for ever."""
    hidden.commit((100, 101))
    hidden.commit((102, 103))
    assert hidden.served.act(ServiceKind.COMPACT_INDEX)
    assert bases_that_count(hidden) > 0
    hidden.check()


class DyingTerm:
    """The term of a coordinator that dies when it has published so many files."""

    def __init__(self, inner: Term, files: int) -> None:
        self._inner, self._left = inner, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def publish(self, tickets: Sequence[Ticket], lease: Lease | None = None) -> None:
        for ticket in tickets:
            if not self._left:
                raise OSError("killed")
            self._left -= 1
            self._inner.publish([ticket], lease)


def test_a_successor_of_one_that_died_while_it_put_files_back_rewinds_as_well(
    hidden: Story, tmp_path: Path
) -> None:
    deaths, is_whole = 0, False
    hidden.forget_coordinator()
    while not is_whole:
        story = hidden.copy(tmp_path / f"died-{deaths}")
        bases, term = HiddenBases(), DyingTerm(story.served.term, deaths)
        try:
            with pytest.raises(AttemptLostError):
                check_hidden(story, bases, 0, term)
            check_hidden(story, bases, 1, term)
            is_whole = True
        except OSError:
            story.storage.delete_tree(".hoodie/lock")
            story.served.begin()
            successor = HiddenBases()
            with pytest.raises(AttemptLostError) as lost:
                check_hidden(story, successor, 1)
            assert lost.value.rewind
            story.check()
            check_hidden(story, successor, 2)
        assert_whole(story)
        deaths += 1
    assert deaths > 3, "an instant has three files"
