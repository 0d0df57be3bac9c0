"""What a coordinator answers to who asks which table it serves."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from testing.terms import begin_term
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.messages import served_message
from tidemark.commit_coordinator.opening import sign_of_life
from tidemark.commit_coordinator.opening.ledger_identity import location_of
from tidemark.commit_coordinator.opening.served import ServedTable
from tidemark.console.admin_client import served_of
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_identity import Served, shown_owner


def table_at(path: Path) -> LocalStorage:
    storage = LocalStorage(path)
    storage.create(PROPERTIES_PATH, b"hoodie.table.name=orders\n")
    return storage


def test_owner_and_place_are_said_once_the_folder_shows_the_owner(tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    served = ServedTable(storage)
    assert served.answer() == Served(str(tmp_path / "t"))
    served.taken_over(begin_term(storage), "coordinator-a")
    assert served.answer() == Served(str(tmp_path / "t"), "coordinator-a", location_of(storage))
    assert shown_owner(storage) == "coordinator-a"


def test_properties_that_others_wrote_anew_are_seen_while_the_table_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_of_life, "CHANGES_EVERY_S", 0.01)
    storage = table_at(tmp_path / "t")
    served = ServedTable(storage)
    served.taken_over(begin_term(storage), "coordinator-a")
    before = served.answer().location
    with served.sign_of_life():
        properties = tmp_path / "t" / PROPERTIES_PATH
        shutil.copy(properties, properties.with_name("anew"))
        os.replace(properties.with_name("anew"), properties)
        end_s = time.monotonic() + 60.0
        while served.answer().location == before:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert served.answer() == Served(str(tmp_path / "t"), "coordinator-a", location_of(storage))


@pytest.mark.parametrize("location", [None, TableLocation("/data/t", "7:9", "7:5"), TableLocation("/data/t")])
def test_the_answer_over_the_wire(location: TableLocation | None) -> None:
    served = Served("/data/t", "coordinator-a", location)
    assert served_of(pb.ServesResponse.FromString(served_message(served).SerializeToString())) == served


def test_a_former_version_says_no_place() -> None:
    assert served_of(pb.ServesResponse(path="/data/t", served_by="a")) == Served("/data/t", "a")
