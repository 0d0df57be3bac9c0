"""The kill campaign's final comparison of a secondary index with the rows finds what is missing, wrong, one
too many, twice there and in a wrong file group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.chaos.data_files import named_by_writes
from tests.chaos.secondary_entries import Entry, KeptIndex, check_entries, group_of, kept_index, read_entries
from tests.unit.table_files import existing_table, new_table, write_config
from tidemark.cli.main import main
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.table_config import TableType

INDEX = "secondary_index_by_it"
ROWS: dict[str, dict[str, Any]] = {
    "k1": {"id": "k1", "day": "2026-01-01", "at": 1, "note": "a$b\\c"},
    "k2": {"id": "k2", "day": "2026-01-02", "at": 2, "note": None},
    "k3": {"id": "k3", "day": "2026-01-02", "at": 3, "note": "x"},
    "k4": {"id": "k4", "day": "2026-01-02", "at": 2, "note": "x"},
}
ENTRIES = {"k1": "a\\$b\\\\c$k1", "k2": "\x00$k2", "k3": "x$k3", "k4": "x$k4"}


class Table:
    """A table with these rows and an index of one of its columns; wrong entries are written into it."""

    def __init__(self, folder: Path, column: str = "note", kind: TableType = TableType.MERGE_ON_READ) -> None:
        self.root = folder / "table"
        writer = new_table(self.root, kind)
        self.instant = writer.commit(pa.Table.from_pylist(list(ROWS.values())))
        config = write_config(folder)
        config.write_text(
            config.read_text().replace("table:\n", f"table:\n  type: {kind.value.lower()}\n", 1)
        )
        self.config = str(config)
        assert main(["index", "create", "-c", self.config, "by_it", "--column", column]) == 0

    def plant(self, puts: Sequence[str], deletes: Sequence[str], group: int, instant: str = "") -> None:
        """Entries that no commit should have written, under the first one's instant."""
        changes = SecondaryChanges(pa.array(puts, pa.string()), pa.array(deletes, pa.string()))
        log, data = SecondaryIndexPartition(INDEX).log_file(changes, instant or self.instant, ShardId(group))
        (self.root / log.path).write_bytes(data)

    def found(self) -> list[str]:
        return list(check_entries(self.root, ROWS))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.mark.parametrize("kind", list(TableType))
@pytest.mark.parametrize("column", ["note", "at", "day"])
def test_each_row_has_exactly_its_entry(tmp_path: Path, column: str, kind: TableType):
    table = Table(tmp_path, column, kind)
    assert table.found() == []
    groups, entries = read_entries(table.root, INDEX)
    assert groups == 2
    assert {entry.key.rpartition("$")[2] for entry in entries} == ROWS.keys()


def test_the_commit_that_makes_an_index_names_all_its_files(table: Table):
    """As Hudi's own does; `check_files` takes a base file that nobody names for an orphan."""
    folder = table.root / f".hoodie/metadata/{INDEX}"
    files = {f"{INDEX}/{file.name}" for kind in ("*.hfile", ".*.log.*") for file in folder.glob(kind)}
    assert len(files) == 3, "a log file of each group, and the base file of the one that has entries"
    assert files <= named_by_writes(table.root, ".hoodie/metadata/.hoodie/timeline")


@pytest.mark.parametrize("key", ROWS)
def test_a_missing_entry_is_found(table: Table, key: str):
    table.plant([], [ENTRIES[key]], group_of(ENTRIES[key], 2))
    assert table.found() == [f"{INDEX}: {key} has no entry {ENTRIES[key]!r}: queries by note lose the row"]


@pytest.mark.parametrize("more", ["y$k3", "x$k9", "\x00$k1", "x\\$k3$k3"])
def test_an_entry_too_many_is_found(table: Table, more: str):
    table.plant([more], [], group_of(more, 2))
    assert table.found() == [f"{INDEX}: the entry {more!r} has no row"]


def test_a_wrong_entry_is_found_as_one_that_is_missing_and_one_too_many(table: Table):
    """What an epoch leaves that changes a row and takes the former value for another one."""
    existing_table(table.root).commit(pa.Table.from_pylist([{**ROWS["k3"], "at": 9, "note": "y"}]))
    rows = {**ROWS, "k3": {**ROWS["k3"], "at": 9, "note": "y"}}
    assert list(check_entries(table.root, rows)) == [
        f"{INDEX}: k3 has no entry 'y$k3': queries by note lose the row",
        f"{INDEX}: the entry 'x$k3' has no row",
    ]


def test_an_entry_in_a_wrong_file_group_is_found(table: Table):
    right = group_of("x$k3", 2)
    table.plant([], ["x$k3"], right)
    table.plant(["x$k3"], [], 1 - right)
    said = f"{INDEX}: the entry 'x$k3' is in the file group"
    assert table.found() == [f"{said} {1 - right}, not in {right}"]


def test_an_entry_that_is_there_twice_is_found(table: Table):
    right = group_of("x$k3", 2)
    table.plant(["x$k3"], [], 1 - right)
    assert f"{INDEX}: the entry 'x$k3' is there twice" in table.found()


def test_log_files_that_no_commit_wrote_are_not_read(table: Table):
    table.plant(["x$k9"], ["x$k3"], group_of("x$", 2), "29990101000000000")
    assert table.found() == []


@pytest.mark.parametrize("content", ["", "0000000000000e000000000201"])
def test_a_content_that_is_not_that_of_an_entry_is_found(table: Table, content: str):
    """None at all, and one that says of itself that it is deleted."""
    folder = table.root / f".hoodie/metadata/{INDEX}"
    (base,) = folder.glob(f"*-{group_of('x$', 2):04d}-0_*.hfile")
    keys = pa.array(["x$k3", "x$k4"])
    base.write_bytes(write_hfile(keys, pa.array([bytes.fromhex(content)] * 2), "{}"))
    with pytest.raises(ValueError, match="not that of an entry"):
        table.found()


def test_a_table_without_index_and_one_with_half_an_index_are_told_apart(table: Table):
    assert kept_index(table.root) == KeptIndex(INDEX, "note", is_listed=True)
    properties = table.root / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace(f",{INDEX}", ""))
    half = KeptIndex(INDEX, "note", is_listed=False)
    assert kept_index(table.root) == half
    assert table.found() == [f"the table has no secondary index that is listed: {half}"]
    assert main(["index", "drop", "-c", table.config, "by_it"]) == 0
    assert kept_index(table.root) is None
    assert table.found() == ["the table has no secondary index that is listed: None"]


@pytest.mark.parametrize(
    ("key", "group"), [("paris$k1", 3), ("a\\$b\\\\c$k1", 2), ("\x00$k1", 0), ("$k1", 0)]
)
def test_groups_are_those_that_hudi_chose(key: str, group: int):
    """As Hudi on Spark wrote them with four groups (METADATA_TABLE.md, section 10.2)."""
    assert group_of(key, 4) == group


def test_the_record_key_s_dollars_do_not_move_its_entry():
    assert group_of("x$a\\$b", 4) == group_of("x$k1", 4) == Entry("x$k1", group_of("x$", 4)).group
