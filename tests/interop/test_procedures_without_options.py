"""docs/hudi-beside.md, "Procedures": which of Hudi's procedures drop the record index when they are not told
of it, which change no index, and that the options that `tidemark table describe` prints keep it.

What is dropped is noticed by the check that the coordinator makes before it plans and before it decides.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.hudi_options import read_table_properties
from tests.interop.judge import HudiJudge
from tests.interop.ruled_table import look
from tests.interop.verdict import assert_record_index_is_data
from tests.unit.table_files import orders
from tests.unit.table_verification.damage import DAYS, changed_table
from tidemark.hudi_format.commit.foreign_writers import procedure_options
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.validation import check_servable, check_still_servable

pytestmark = pytest.mark.spark

ROWS, SHARDS = 59, 2
PARTITIONS = "hoodie.table.metadata.partitions"
SERIAL = itertools.count()


class CalledTable:
    """A copy of a table of ours, of two commits, that has a name in the session's catalog."""

    def __init__(self, judge: HudiJudge, path: Path, name: str) -> None:
        self.judge, self.path, self._name = judge, path, name

    def call(self, procedure: str, options: str = "", **arguments: Any) -> list[Any]:
        """The procedure's answer; no options and no settings but those given here."""
        named = {"table": self._name, **arguments, **({"options": options} if options else {})}
        listed = ", ".join(
            f"{name} => {value}" if isinstance(value, int) else f"{name} => '{value}'"
            for name, value in named.items()
        )
        return list(self.judge.spark.sql(f"CALL {procedure}({listed})").collect())

    def instants(self) -> list[str]:
        """Requested times of the completed writes."""
        return [each.requested for each in look(self.path).timeline.writes()]

    def indexes(self) -> set[str]:
        """Partitions of the metadata table that are in use."""
        return set(read_table_properties(self.path)[PARTITIONS].split(","))

    @contextmanager
    def told(self, options: Mapping[str, str]) -> Iterator[None]:
        """The session's settings, for procedures that take no options."""
        for key, value in options.items():
            self.judge.spark.sql(f"SET {key}={value}")
        try:
            yield
        finally:
            for key in options:
                self.judge.spark.conf.unset(key)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "orders"
    changed_table(path, TableType.MERGE_ON_READ)
    return path


@pytest.fixture
def table(judge: HudiJudge, source: Path, tmp_path: Path) -> Iterator[CalledTable]:
    path, name = tmp_path / "orders", f"called_{next(SERIAL)}"
    shutil.copytree(source, path)
    judge.spark.sql(f"create table {name} using hudi location '{path}'")
    made = CalledTable(judge, path, name)
    assert made.indexes() == {"files", "record_index"}
    yield made
    judge.spark.sql(f"drop table {name}")


Procedure = Callable[[CalledTable, str], object]
"""Makes what it needs (which changes no index), then calls the procedure; the text: `options`, or none."""


def compaction(table: CalledTable, options: str) -> object:
    schedule(table)
    return table.call("run_compaction", options, op="execute")


def clean(table: CalledTable, options: str) -> object:
    """Of the slices before a compaction; with nothing to delete it changes nothing."""
    compaction(table, procedure_options(SHARDS))
    return table.call(
        "run_clean", options, clean_policy="KEEP_LATEST_FILE_VERSIONS", file_versions_retained=1
    )


def clustering(table: CalledTable, options: str) -> object:
    return table.call("run_clustering", options, op="scheduleAndExecute")


def rollback(table: CalledTable, options: str) -> object:
    with table.told(settings(options)):
        return table.call("rollback_to_instant", instant_time=table.instants()[-1])


def restore(table: CalledTable, options: str) -> object:
    first = table.instants()[0]
    table.call("create_savepoint", commit_time=first)
    with table.told(settings(options)):
        return table.call("rollback_to_savepoint", instant_time=first)


def schedule(table: CalledTable) -> object:
    answer = table.call("run_compaction", "hoodie.compact.inline.max.delta.commits=1", op="schedule")
    assert look(table.path).scheduled
    return answer


def savepoint(table: CalledTable) -> object:
    answer = table.call("create_savepoint", commit_time=table.instants()[0])
    assert look(table.path).timeline.savepoints
    return answer


def savepoint_deleted(table: CalledTable) -> object:
    savepoint(table)
    answer = table.call("delete_savepoint", instant_time=table.instants()[0])
    assert not look(table.path).timeline.savepoints
    return answer


def archival(table: CalledTable) -> object:
    """Hudi archives nothing before its metadata table was compacted."""
    for at in range(30, 34):
        rows = orders(*((f"k{n}", DAYS[n % 3], at) for n in range(0, 30, 3)))
        table.judge.upsert(table.path, rows, {"hoodie.metadata.compact.max.delta.commits": "1"})
    assert not look(table.path).archived
    answer = table.call("archive_commits", min_commits=2, max_commits=3, retain_commits=1)
    assert look(table.path).archived
    return answer


def settings(options: str) -> dict[str, str]:
    return dict(each.split("=") for each in options.split(",") if each)


DROPPING: dict[Procedure, str] = {
    compaction: "compaction",
    clean: "clean",
    clustering: "clustering",
    rollback: "rollback",
    restore: "restore",
}
"""With the action of what they do on the timeline."""
HARMLESS: tuple[Callable[[CalledTable], object], ...] = (schedule, savepoint, savepoint_deleted, archival)


@pytest.mark.parametrize("procedure", DROPPING, ids=lambda each: each.__name__)
def test_without_the_options_the_index_is_dropped_and_the_coordinator_says_so(
    table: CalledTable, procedure: Procedure
) -> None:
    procedure(table, "")
    # A restore builds the metadata table anew, with the first of them alone.
    built = {"column_stats"} if procedure is restore else {"column_stats", "partition_stats"}
    assert table.indexes() == {"files", *built}
    assert not (table.path / RECORD_INDEX_FOLDER).exists()
    with pytest.raises(UnsupportedTableError) as told:
        check_still_servable(LocalStorage(table.path))
    assert "the table has no record level index" in told.value.reason
    assert f"the metadata table keeps {', '.join(sorted(built))}, which" in told.value.reason
    assert "with the options that `tidemark table describe` prints" in told.value.remedy


@pytest.mark.parametrize("procedure", DROPPING, ids=lambda each: each.__name__)
def test_the_options_that_describe_prints_keep_the_index(table: CalledTable, procedure: Procedure) -> None:
    before = look(table.path).timeline
    procedure(table, procedure_options(SHARDS))
    done = look(table.path).timeline.completed(DROPPING[procedure])
    assert [each for each in done if each not in before.completed(DROPPING[procedure])], "nothing was done"
    assert table.indexes() == {"files", "record_index"}
    check_servable(LocalStorage(table.path))
    assert MetadataTableSnapshot.load(LocalStorage(table.path)).num_shards == SHARDS
    rows = table.judge.snapshot(table.path)
    assert len(rows) == (60 if procedure in (rollback, restore) else ROWS)
    assert_record_index_is_data(table.judge, table.path)


@pytest.mark.parametrize("procedure", HARMLESS, ids=lambda each: each.__name__)
def test_what_changes_no_index_needs_no_options(
    table: CalledTable, procedure: Callable[[CalledTable], object]
) -> None:
    procedure(table)
    assert table.indexes() == {"files", "record_index"}
    check_still_servable(LocalStorage(table.path))
    assert_record_index_is_data(table.judge, table.path)
