"""Do the folder and the topics that meet belong to each other? Moved, copied, mistaken, lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from testing.ids import SeededIds
from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tidemark.commit_coordinator.commit.index_shards import check_number
from tidemark.commit_coordinator.errors import DivergedError
from tidemark.commit_coordinator.opening.ledger_identity import (
    MovedOrCopiedError,
    check_belongs,
    check_topics_there,
    is_same_place,
    ledger_id,
    location_of,
)
from tidemark.commit_coordinator.opening.ledger_record import (
    LEDGER_RECORD,
    LedgerRecorder,
    read_ledger_record,
)
from tidemark.epoch_protocol.entries import (
    CoordinatorClaimed,
    LanesClaimed,
    Stage,
    TableLocation,
    TaggingPaused,
    decode_decision,
    decode_ledger_entry,
    encode_entry,
)
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.state import Committed, FoldState
from tidemark.hudi_format.errors import FencedOutError, UnsupportedTableError
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_identity import TABLE_ID, known_ledger_id

THERE = TableLocation("/a", "1:1")


def table_at(folder: Path) -> LocalStorage:
    storage = LocalStorage(str(folder))
    storage.create(PROPERTIES_PATH, b"x")
    return storage


def test_the_identity_is_made_once_and_kept() -> None:
    storage, ids = InMemoryStorage(), SeededIds(1)
    assert known_ledger_id(storage) == ""
    first = ledger_id(storage, ids)
    assert first
    assert ledger_id(storage, ids) == known_ledger_id(storage) == first


def test_topics_without_an_identity_belong_to_whoever_comes_first() -> None:
    check_belongs(FoldState(), "t", "mine", TableLocation("/b", "2:2"))


def test_the_same_place_is_the_path_or_the_file() -> None:
    assert is_same_place(None, THERE)
    assert is_same_place(THERE, TableLocation("/a", "9:9")), "its properties were written anew"
    assert is_same_place(THERE, TableLocation("/b", "1:1")), "a mount, or moved within the file system"
    assert not is_same_place(THERE, TableLocation("/b", "2:2"))
    assert not is_same_place(TableLocation("/a", ""), TableLocation("/b", "")), "unknown is not the same"


def test_a_copied_folder_is_asked_for_with_a_command_for_each_case() -> None:
    state = FoldState(ledger="l", location=THERE)
    with pytest.raises(MovedOrCopiedError, match=r"at /a, and table.path is /b: was.*--moved.*--copied"):
        check_belongs(state, "t", "l", TableLocation("/b", "2:2"))
    check_belongs(state, "t", "l", TableLocation("/b", "1:1"))


@pytest.mark.parametrize("ledger", ["other", ""])
def test_another_table_does_not_take_the_topics(ledger: str) -> None:
    state = FoldState(ledger="l", location=THERE)
    with pytest.raises(DivergedError, match=r"of the table at /a.*Each table needs a table.name of its own"):
        check_belongs(state, "t", ledger, TableLocation("/b", "2:2"))
    with pytest.raises(DivergedError, match=r"given up: `tidemark table adopt --new-ledger`"):
        check_belongs(state, "t", ledger, THERE)


def test_topics_that_are_not_there_are_not_made_anew_beside_a_ledger_that_began() -> None:
    with pytest.raises(DivergedError, match=r"not on k:1.*--new-ledger"):
        check_topics_there(True, False, "t", "k:1")
    for recorded, exists in ((False, False), (False, True), (True, True)):
        check_topics_there(recorded, exists, "t", "k:1")


def test_links_and_moves_are_told_from_copies(tmp_path: Path) -> None:
    here = location_of(table_at(tmp_path / "t"))
    os.symlink(tmp_path / "t", tmp_path / "link")
    assert location_of(LocalStorage(str(tmp_path / "link"))) == here
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    assert not is_same_place(here, location_of(LocalStorage(str(tmp_path / "copy"))))
    (tmp_path / "t").rename(tmp_path / "moved")
    assert is_same_place(here, location_of(LocalStorage(str(tmp_path / "moved"))))
    shutil.copytree(tmp_path / "moved", tmp_path / "linked", copy_function=os.link)
    assert location_of(LocalStorage(str(tmp_path / "linked"))).file == "", "one file under two paths"


def test_a_table_whose_properties_were_written_anew_is_told_from_a_copy(tmp_path: Path) -> None:
    """A copy's properties may get the inode that those of the table had before."""
    storage = table_at(tmp_path / "t")
    storage.create(TABLE_ID, b"ledger-a")
    known = location_of(storage)
    storage.replace(PROPERTIES_PATH, b"y")
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    copy = location_of(LocalStorage(str(tmp_path / "copy")))
    assert known.identity
    assert copy.identity
    for each in (copy, replace(copy, file=known.file)):
        assert not is_same_place(known, each)
    (tmp_path / "t").rename(tmp_path / "moved")
    moved = location_of(LocalStorage(str(tmp_path / "moved")))
    assert moved.file != known.file
    assert is_same_place(known, moved)


def test_a_claim_of_a_version_that_said_less_is_compared_by_the_properties(tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    storage.create(TABLE_ID, b"ledger-a")
    known = replace(location_of(storage), identity="")
    (tmp_path / "t").rename(tmp_path / "moved")
    assert is_same_place(known, location_of(LocalStorage(str(tmp_path / "moved"))))


def test_a_claim_of_another_ledger_does_not_count() -> None:
    fold = Fold()
    assert fold.apply_decision(0, CoordinatorClaimed("former version")) is Verdict.CLAIMED
    assert fold.apply_decision(1, CoordinatorClaimed("a", ledger="l", location=THERE)) is Verdict.CLAIMED
    assert (fold.state.ledger, fold.state.location) == ("l", THERE)
    assert fold.apply_decision(2, CoordinatorClaimed("zombie", ledger="k")) is Verdict.OTHER_LEDGER
    assert fold.state.coordinator_term == 1
    assert fold.apply_decision(3, TaggingPaused(2, True, "x")) is Verdict.STALE_COORDINATOR
    assert fold.apply_decision(4, CoordinatorClaimed("b", ledger="l")) is Verdict.CLAIMED
    assert fold.state.location == THERE
    assert Fold.restore(fold.snapshot()).state == fold.state


def test_the_number_of_shards_stays_when_a_claim_does_not_say_it() -> None:
    """Commands that end what is open claim without it; so did former versions."""
    fold = Fold()
    assert fold.apply_decision(0, CoordinatorClaimed("former version")) is Verdict.CLAIMED
    check_number(fold.state.shards, 10)
    assert fold.apply_decision(1, CoordinatorClaimed("a", shards=4)) is Verdict.CLAIMED
    assert fold.apply_decision(2, CoordinatorClaimed("recover")) is Verdict.CLAIMED
    assert fold.state.shards == 4
    check_number(fold.state.shards, 4)
    with pytest.raises(UnsupportedTableError, match=r"has 10 shards.*made for 4.*filegroup.count 4 "):
        check_number(fold.state.shards, 10)
    for known in (4, 0):
        with pytest.raises(UnsupportedTableError, match=r"has no shards"):
            check_number(known, 0)


def lanes_claimed(ledger: str, offset: int) -> LanesClaimed:
    return LanesClaimed(Stage.SHUFFLE, ["in:0"], 0, offset, f"owner-{offset}", ledger=ledger)


def test_lanes_are_claimed_for_the_ledger_alone_in_whatever_order_the_topics_are_read() -> None:
    """Who has not read the coordinator's claim yet waits for it: else a claim would count for one and not for
    another.
    """
    fold = Fold()
    assert fold.apply_ledger(0, lanes_claimed("", 0)) is Verdict.CLAIMED, "of a former version"
    assert fold.apply_ledger(1, lanes_claimed("l", 1)) is Verdict.WAIT_FOR_DECISIONS
    assert fold.apply_decision(0, CoordinatorClaimed("a", ledger="l")) is Verdict.CLAIMED
    assert fold.apply_ledger(1, lanes_claimed("l", 1)) is Verdict.CLAIMED
    assert fold.apply_ledger(2, lanes_claimed("k", 2)) is Verdict.OTHER_LEDGER
    assert fold.apply_ledger(3, lanes_claimed("", 3)) is Verdict.CLAIMED
    assert fold.state.shuffle_lanes["in:0"].owner == "owner-3"
    assert fold.state.ledger_next == 4


def test_claims_of_lanes_of_former_versions_are_read() -> None:
    old = b'{"type":"lanes_claimed","stage":"shuffle","lanes":["in:0"],"generation":0,"slot":1,"owner":"o"}'
    claim = lanes_claimed("l", 1)
    assert decode_ledger_entry(old) == LanesClaimed(Stage.SHUFFLE, ["in:0"], 0, 1, "o")
    assert decode_ledger_entry(encode_entry(claim)) == claim


def test_claims_of_former_versions_are_read() -> None:
    assert decode_decision(b'{"type": "coordinator_claimed", "owner": "c"}') == CoordinatorClaimed("c")
    claim = CoordinatorClaimed("c", ledger="l", location=THERE, shards=4)
    assert decode_decision(encode_entry(claim)) == claim


def test_what_is_committed_is_kept_behind_the_term_s_fence() -> None:
    storage = InMemoryStorage()
    recorder = LedgerRecorder(begin_term(storage))
    state = FoldState(ledger="l", committed=Committed(3, 9, "i", "c", source_next={"in:0": 7}))
    recorder.keep(state)
    record = read_ledger_record(storage)
    assert record is not None
    assert (record.ledger, record.committed) == ("l", state.committed)
    begin_term(storage, 2)
    recorder.keep(state)
    state.committed = Committed(4, 12)
    with pytest.raises(FencedOutError):
        recorder.keep(state)
    storage.replace(LEDGER_RECORD, b"{")
    assert read_ledger_record(storage) is None
