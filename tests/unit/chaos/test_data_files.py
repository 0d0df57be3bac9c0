"""The kill campaign finds an orphan and a missing file, also where compactions, replacing commits, cleans and
rollbacks say which files there have to be, active or archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.chaos.end_checks import check_files
from tests.chaos.timeline_watch import Commit
from tests.unit.chaos.archives import archive, leave

COMMIT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "commit",
        "fields": [
            {
                "name": "partitionToWriteStats",
                "type": {
                    "type": "map",
                    "values": {"type": "array", "items": {"type": "map", "values": "string"}},
                },
            }
        ],
    }
)
DELETION = fastavro.parse_schema(
    {
        "type": "record",
        "name": "deletion",
        "fields": [
            {
                "name": "partitionMetadata",
                "type": {
                    "type": "map",
                    "values": {
                        "type": "record",
                        "name": "partition",
                        "fields": [
                            {"name": "successDeleteFiles", "type": {"type": "array", "items": "string"}}
                        ],
                    },
                },
            }
        ],
    }
)
METADATA = ".hoodie/metadata"
LOG, BASE = "r0/.g_10.log.1_0-0-0", "r0/g_1-0-0_20.parquet"


def written(paths: Iterable[str]) -> Mapping[str, Any]:
    """What a completed write says that it wrote."""
    stats: dict[str, list[Mapping[str, str]]] = {}
    for path in paths:
        stats.setdefault(path.split("/")[0], []).append({"path": path})
    return {"partitionToWriteStats": stats}


class Table:
    """Files, and what the timeline says of them. Number n begins at instant 10 n and ends one later."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.timeline = root / ".hoodie/timeline"
        for folder in (self.timeline, root / ".hoodie/metadata/.hoodie/timeline"):
            folder.mkdir(parents=True)

    def put(self, *paths: str) -> None:
        for path in paths:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(b"rows")

    def write(self, number: int, paths: Iterable[str], action: str = "deltacommit", plan: str = "") -> None:
        self._complete(number, action, COMMIT, written(paths), plan or action)

    def write_metadata(
        self, number: int, paths: Iterable[str], action: str = "deltacommit", plan: str = ""
    ) -> None:
        """The same in the metadata table, below whose folder ``paths`` are."""
        timeline = self.root / METADATA / ".hoodie/timeline"
        self._complete(number, action, COMMIT, written(paths), plan or action, timeline)

    def delete(self, number: int, action: str, partition: str, names: list[str]) -> None:
        document = {"partitionMetadata": {partition: {"successDeleteFiles": names}}}
        self._complete(number, action, DELETION, document, action)

    def _complete(
        self, number: int, action: str, schema: Any, document: Any, plan: str, timeline: Path | None = None
    ) -> None:
        timeline = timeline or self.timeline
        (timeline / f"{10 * number:017}.{plan}.requested").touch()
        with (timeline / f"{10 * number:017}_{10 * number + 1:017}.{action}").open("wb") as out:
            fastavro.writer(out, schema, [document])

    def found(self, *seen: str) -> list[str]:
        """`seen`: files that a commit named which the watcher saw, and which may be archived since."""
        commits = [Commit("", "", 1, {}, 0, {}, frozenset(seen))]
        return list(check_files(self.root, commits))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """An epoch and a compaction of what it wrote."""
    table = Table(tmp_path / "t")
    table.put(LOG, BASE)
    table.write(1, [LOG])
    table.write(2, [BASE], "commit", plan="compaction")
    return table


def test_base_files_of_compactions_and_replacing_commits_are_no_orphans(table: Table):
    assert table.found(LOG) == []
    table.put("r1/h_1-0-0_30.parquet")
    assert table.found(LOG) == ["orphan: r1/h_1-0-0_30.parquet belongs to no commit"]
    table.write(3, ["r1/h_1-0-0_30.parquet"], "replacecommit", plan="clustering")
    assert table.found(LOG) == []


@pytest.mark.parametrize("path", ["r0/g_9-9-9_20.parquet", "r0/g_1-0-0_30.parquet", "r1/.h_30.log.1_0-0-0"])
def test_a_planted_orphan_is_found_beside_compactions(table: Table, path: str):
    table.put(path)
    assert table.found(LOG) == [f"orphan: {path} belongs to no commit"]


@pytest.mark.parametrize("path", [LOG, BASE])
def test_a_missing_file_is_found_beside_compactions(table: Table, path: str):
    (table.root / path).unlink()
    assert table.found(LOG) == [f"{path} is in a commit, and not in the table"]


def test_a_missing_file_of_an_archived_commit_is_found(table: Table):
    assert table.found(LOG, "r0/.g_5.log.1_0-0-0") == [
        "r0/.g_5.log.1_0-0-0 is in a commit, and not in the table"
    ]


def test_a_plan_without_a_completed_compaction_makes_no_file_due(table: Table):
    (table.timeline / f"{30:017}.compaction.requested").touch()
    assert table.found(LOG) == [f"instants that never ended: ['{30:017}']"]
    table.put("r0/g_1-0-0_30.parquet")
    assert "orphan: r0/g_1-0-0_30.parquet belongs to no commit" in table.found(LOG)


@pytest.mark.parametrize(
    ("action", "name"), [("clean", ".g_10.log.1_0-0-0"), ("rollback", f"file:/somewhere/t/{LOG}")]
)
def test_what_a_clean_or_a_rollback_deleted_must_be_gone(table: Table, action: str, name: str):
    table.delete(3, action, "r0", [name])
    assert table.found(LOG) == [f"orphan: {LOG} belongs to no commit"]
    (table.root / LOG).unlink()
    assert table.found(LOG) == []


def test_files_of_a_table_without_partitions_are_deleted_by_name(tmp_path: Path):
    table = Table(tmp_path / "t")
    table.put("g_1-0-0_10.parquet")
    table.write(1, ["g_1-0-0_10.parquet"], "commit")
    assert table.found() == []
    table.delete(2, "clean", "", ["g_1-0-0_10.parquet"])
    assert table.found() == ["orphan: g_1-0-0_10.parquet belongs to no commit"]


def test_archived_writes_and_cleans_say_it_too(table: Table):
    table.write(3, ["r0/g_2-0-0_30.parquet"], "commit", plan="compaction")
    table.put("r0/g_2-0-0_30.parquet")
    table.delete(4, "clean", "r0", [BASE.partition("/")[2]])
    (table.root / BASE).unlink()
    assert table.found() == []
    files = sorted(table.timeline.glob("*_*.*"))
    archive(table.timeline, files)
    assert table.found() == [], "they are in both while archival deletes"
    leave(files)
    assert table.found() == []
    table.put(BASE)
    assert table.found() == [f"orphan: {BASE} belongs to no commit"]
    (table.root / BASE).unlink()
    (table.root / LOG).unlink()
    assert table.found() == [f"{LOG} is in a commit, and not in the table"]


INDEX_BASE = f"record_index/record-index-0000-0_0-1-2_{20:017}.hfile"


@pytest.mark.parametrize("folder", ["files", "record_index", "column_stats", "an_index_that_is_new"])
def test_a_planted_log_file_of_the_metadata_table_is_found(table: Table, folder: str):
    name = f"{folder}/.f-0000-0_{10:017}.log.1_0-0-0"
    table.put(f"{METADATA}/{name}")
    assert table.found(LOG) == [f"orphan: {name} of the metadata table belongs to no commit"]
    table.write_metadata(1, [name])
    assert table.found(LOG) == []


def test_a_planted_base_file_of_the_metadata_table_is_found(table: Table):
    """Beside one of a completed compaction: the same instant is not enough, the compaction has to name it."""
    table.put(f"{METADATA}/{INDEX_BASE}", f"{METADATA}/record_index/.hoodie_partition_metadata")
    orphan = [f"orphan: {INDEX_BASE} of the metadata table belongs to no commit"]
    assert table.found(LOG) == orphan
    (table.root / METADATA / ".hoodie/timeline" / f"{20:017}.compaction.requested").touch()
    assert table.found(LOG) == orphan
    table.write_metadata(2, [INDEX_BASE], "commit", plan="compaction")
    assert table.found(LOG) == []
    timeline = table.root / METADATA / ".hoodie/timeline"
    files = sorted(timeline.glob("*_*.*"))
    archive(timeline, files)
    leave(files)
    assert table.found(LOG) == []
    another = INDEX_BASE.replace("0-1-2", "0-9-9")
    table.put(f"{METADATA}/{another}")
    assert table.found(LOG) == [f"orphan: {another} of the metadata table belongs to no commit"]
