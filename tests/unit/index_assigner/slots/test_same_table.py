"""Coordinator, topics and folder of two tables of one name, mixed up in a configuration: refused by name."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.index_assigner.test_setup_checks import Setup
from tidemark.commit_coordinator.opening.ledger_identity import location_of
from tidemark.epoch_protocol.entries import CoordinatorClaimed, Stage, TableLocation, encode_entry
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.index_assigner.slots.membership import JoinFacts
from tidemark.index_assigner.slots.same_table import check_same_ledger, check_same_table
from tidemark.ledger_client.table_identity import TABLE_ID
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ports import TopicPartition


def table(folder: Path, ledger: str = "ledger-a") -> LocalStorage:
    storage = LocalStorage(folder)
    storage.create(PROPERTIES_PATH, b"hoodie.table.name=orders\n")
    if ledger:
        storage.create(TABLE_ID, ledger.encode())
    return storage


def claimed(storage: LocalStorage, ledger: str = "ledger-a") -> FoldState:
    """What the topics say once a coordinator claimed the table."""
    return FoldState(ledger=ledger, location=location_of(storage))


def write_anew(storage: LocalStorage) -> None:
    """Its properties, as another engine does."""
    before = storage.stat(PROPERTIES_PATH)
    storage.replace(PROPERTIES_PATH, b"hoodie.table.name=orders\nhoodie.more=1\n")
    assert before != storage.stat(PROPERTIES_PATH)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_what_belongs_together_is_taken(setup: Setup, tmp_path: Path):
    mine = table(tmp_path / "mine")
    check_same_table(setup.config, mine, "ledger-a", claimed(mine))
    check_same_table(setup.config, mine, "ledger-a", FoldState())
    # Of a coordinator that names none.
    check_same_table(setup.config, mine, "", FoldState())
    # The same folder through another path, and on a machine that does not see the coordinator's.
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    check_same_table(setup.config, LocalStorage(tmp_path / "link"), "ledger-a", claimed(mine))
    elsewhere = FoldState(ledger="ledger-a", location=TableLocation("/not/here", "7:7"))
    check_same_table(setup.config, mine, "ledger-a", elsewhere)


def test_no_lane_is_claimed_in_topics_that_are_another_ledger_by_now():
    for folded in ("", "ledger-a"):
        check_same_ledger("orders", "ledger-a", folded)
    check_same_ledger("orders", "", "ledger-b")
    with pytest.raises(
        SetupError, match=r"orders\.\* hold the ledger ledger-b now.*ledger-a: it claims nothing"
    ):
        check_same_ledger("orders", "ledger-a", "ledger-b")


@pytest.mark.parametrize("ledger", ["ledger-b", ""])
def test_a_folder_of_another_table_is_refused(setup: Setup, tmp_path: Path, ledger: str):
    other = table(tmp_path / "other", ledger)
    with pytest.raises(SetupError, match=r"serves the ledger ledger-a of a table orders.*/other has"):
        check_same_table(setup.config, other, "ledger-a", FoldState())


def test_topics_of_another_table_are_refused(setup: Setup, tmp_path: Path):
    mine = table(tmp_path / "mine")
    with pytest.raises(SetupError, match=r"topics orders\.\* on localhost:1 hold the ledger ledger-b"):
        check_same_table(setup.config, mine, "ledger-a", FoldState(ledger="ledger-b"))


def test_a_copy_of_the_table_that_is_served_is_refused(setup: Setup, tmp_path: Path):
    mine = table(tmp_path / "mine")
    state = claimed(mine)
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    with pytest.raises(SetupError, match=r"/mine, but table.path is .*/copy, a copy of it"):
        check_same_table(setup.config, LocalStorage(tmp_path / "copy"), "ledger-a", state)


@pytest.mark.parametrize("copied_first", [True, False])
def test_a_copy_is_refused_whoever_wrote_the_properties_anew_since_the_claim(
    setup: Setup, tmp_path: Path, copied_first: bool
):
    mine = table(tmp_path / "mine")
    state = claimed(mine)
    if not copied_first:
        write_anew(mine)
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    if copied_first:
        write_anew(mine)
    with pytest.raises(SetupError, match=r"/mine, but table.path is .*/copy, a copy of it"):
        check_same_table(setup.config, LocalStorage(tmp_path / "copy"), "ledger-a", state)


def test_the_table_is_taken_whoever_wrote_its_properties_anew_since_the_claim(setup: Setup, tmp_path: Path):
    """Under its path, under a link, and under a mount that calls another table by the coordinator's path."""
    mine = table(tmp_path / "mine")
    state = claimed(mine)
    shutil.copytree(tmp_path / "mine", tmp_path / "stranger")
    write_anew(mine)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for path in ("mine", "link"):
        check_same_table(setup.config, LocalStorage(tmp_path / path), "ledger-a", state)
    assert state.location is not None
    for there in (str(tmp_path / "stranger"), "/in/the/container"):
        mounted = FoldState(ledger="ledger-a", location=replace(state.location, path=there))
        check_same_table(setup.config, mine, "ledger-a", mounted)


def test_an_assigner_asks_before_it_claims_anything(setup: Setup):
    """The service itself: it joined a coordinator of ledger b, with a folder and topics of ledger a."""
    setup.create()
    setup.storage.create(TABLE_ID, b"ledger-a")
    broker: Any = setup.client._broker
    entry = CoordinatorClaimed("coordinator-a", ledger="ledger-a")
    broker.produce(TopicPartition("orders.epochs", 0), None, encode_entry(entry), ())
    service = setup.service({Stage.SHUFFLE})
    with pytest.raises(SetupError, match="serves the ledger ledger-b"):
        service._context(JoinFacts(4, 2, "s", "ledger-b"), None, threading.Event())  # type: ignore[arg-type]
