"""`tidemark verify` names each row that a secondary index misses, and each entry that it has too many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.unit.commit_coordinator.offline.test_offline_secondary_index import notes
from tests.unit.hudi_format.metadata_tables import change_behind_loading
from tests.unit.table_files import existing_table, new_table, write_config
from tidemark.commit_coordinator.offline.secondary_index import create_index, drop_index, repair_index
from tidemark.config import load_config
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import remove_index_definitions
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.value_lookup import look_up_values
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import Verification, verify_table

NAME = "secondary_index_by_note"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    writer = new_table(tmp_path / "table")
    writer.commit(notes("2026-01-01", 1, k1="a$b", k2=None, k3="x"))
    writer.commit(notes("2026-01-01", 3, k3="z"))
    file = write_config(tmp_path)
    create_index(load_config(file), SystemClock(), SystemIds(), "by_note", "note", lambda text: None)
    return file


def verified(file: Path) -> Verification:
    return verify_table(LocalStorage(file.parent / "table"), lambda text: None)


def test_an_index_that_is_the_rows_agrees(file: Path) -> None:
    said: list[str] = []
    result = verify_table(LocalStorage(file.parent / "table"), said.append)
    assert result.agrees
    assert f"comparing {NAME} with the column note" in said


def test_missing_and_extra_entries_are_named_until_the_index_is_repaired(file: Path) -> None:
    writer = existing_table(file.parent / "table")
    writer.commit(notes("2026-01-01", 9, k1="new", k4=None), deletes=[("k2", None)])
    found = verified(file).findings
    assert found.counts == {Kind.SECONDARY_ENTRY_MISSING: 2, Kind.SECONDARY_ENTRY_EXTRA: 2}
    assert sorted(found.examples[Kind.SECONDARY_ENTRY_MISSING]) == [
        f"{NAME}: k1 with note 'new': not in the index",
        f"{NAME}: k4 with note None: not in the index",
    ]
    assert sorted(found.examples[Kind.SECONDARY_ENTRY_EXTRA]) == [
        f"{NAME}: k1 with note 'a$b': no such row",
        f"{NAME}: k2 with note None: no such row",
    ]
    repair_index(load_config(file), SystemClock(), SystemIds(), "by_note", lambda text: None)
    assert verified(file).agrees


def test_an_index_that_cannot_be_read_is_named(file: Path) -> None:
    storage = LocalStorage(file.parent / "table")
    remove_index_definitions(storage, [NAME])
    found = verified(file).findings
    assert found.examples == {Kind.SECONDARY_INDEX_WRONG: [f"{NAME} is in use without a definition"]}


def test_an_index_without_its_files_is_named(file: Path) -> None:
    storage = LocalStorage(file.parent / "table")
    storage.delete_tree(f"{METADATA_TABLE_PATH}/{NAME}")
    [text] = verified(file).findings.examples[Kind.SECONDARY_INDEX_WRONG]
    assert "its file groups [] are not numbered from 0" in text
    with pytest.raises(UnsupportedTableError, match=r"file groups \[\] are not numbered from 0"):
        look_up_values(storage, "note", ["x"], "", 10)


def test_an_entry_in_a_wrong_group_is_named(file: Path) -> None:
    storage = LocalStorage(file.parent / "table")
    folder = f"{METADATA_TABLE_PATH}/{NAME}"
    (log,) = [name for name in storage.names(folder) if "-0000-0_" in name and ".log." in name]
    storage.create(f"{folder}/{log.replace('-0000-0_', '-0002-0_')}", storage.read(f"{folder}/{log}"))
    found = verified(file).findings
    assert set(found.counts) == {Kind.SECONDARY_INDEX_WRONG}
    assert all(" in group " in text for text in found.examples[Kind.SECONDARY_INDEX_WRONG])


def make_anew(file: Path) -> None:
    create_index(load_config(file), SystemClock(), SystemIds(), "by_note", "note", lambda text: None)


def drop(file: Path) -> None:
    drop_index(load_config(file), SystemClock(), SystemIds(), "by_note", lambda text: None)


@pytest.mark.parametrize("change", [make_anew, drop])
@pytest.mark.parametrize("times", [1, 2])
def test_an_index_that_is_made_anew_or_dropped_meanwhile_is_not_wrong(
    file: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], times: int
) -> None:
    """Its files of now were judged by the timelines of before, of which none knew them: "not numbered from
    0", twice the same text, and the advice to drop a good index.
    """

    left = [make_anew, change][-times:]
    loaded = change_behind_loading(monkeypatch, [partial(each, file) for each in left])
    assert verified(file).findings.counts == {}
    assert loaded == []
