"""Index entries and files that Hudi leaves behind: it takes entries of replaced file groups out by base files
alone.

Rows in log files keep theirs. We take such an entry for none; Hudi's own upsert goes where nobody reads. And
entries of keys go that moved elsewhere since: we stop by name until the index is built anew.

In a partitioned index the first files stay of groups that an undone commit began: we delete them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.input_model import Delete, Upsert
from tests.interop.judge import HudiJudge
from tests.interop.operated_index import PartitionedIndex
from tests.interop.operated_table import OperatedTable
from tests.interop.test_operations_beside_us import IN_MAKE_OPERATIONS, operated
from tests.interop.test_restored_tables import build_index_anew, rows_after_sparks_upsert
from tests.interop.verdict import assert_same_rows
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]
REGION = "region-2"
LOG_COMPACTION = {
    "hoodie.log.compaction.enable": "true",
    "hoodie.log.compaction.inline": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
}


def left_entries(table: OperatedTable) -> int:
    """How many there are, and that nothing else is wrong."""
    found = verify_table(LocalStorage(table.table.path), lambda _: None).findings
    assert found.counts.keys() <= {Kind.ENTRY_WITHOUT_ROW}, found
    return found.counts.get(Kind.ENTRY_WITHOUT_ROW, 0)


@pytest.mark.parametrize(
    "ordering",
    [
        pytest.param("ts", id="ordered"),
        # Hudi leaves the same entries; our inserts over them are in the simulated worlds of both kinds.
        pytest.param(None, id="arrival", marks=IN_MAKE_OPERATIONS),
    ],
)
def test_keys_whose_entries_hudi_left_behind_come_again(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path, ordering: str | None
) -> None:
    with operated(judge, kafka, tmp_path / "ours", "merge_on_read", ordering) as table:
        table.compacted()
        in_logs = table.fresh(REGION, 8)
        table.commit([Upsert(row) for row in in_logs])
        gone = table.forget(table.some(10_000, REGION))
        table.spark.delete_partition(REGION, table._as_table(gone))
        keys = [row["id"] for row in in_logs]
        left = left_entries(table)
        assert left >= len(keys)
        lost = {**in_logs[0], "ts": table.above(), "name": "of Spark"}
        assert rows_after_sparks_upsert(judge, table, keys[0], tmp_path / "copy", lost) == 0

        # Where it was, elsewhere, and a delete of what is not there.
        above = table.above()
        again = [Upsert({**row, "ts": above}) for row in in_logs[:3]]
        moved = [Upsert({**row, "ts": above, "region": "region-0"}) for row in in_logs[3:6]]
        table.send([*again, *moved, Delete(keys[6]), *table.events()])
        table.table.pipeline.flush()
        assert_same_rows(judge.snapshot(table.table.path), table.expected(), "Spark snapshot")
        assert left_entries(table) <= left - len(again) - len(moved)
        table.send([Upsert({**row, "ts": above + 1}) for row in gone])
        table.table.pipeline.flush()
        assert left_entries(table) == 0
        table.agrees_with_everybody()


def drop(table: OperatedTable) -> None:
    table.spark.delete_partition(REGION, table._as_table(table.forget(table.some(10_000, REGION))))


def fold(table: OperatedTable) -> None:
    """A log compaction of the region's file groups, by a write into them."""
    kept = table.some(3, REGION)
    for options in ({}, LOG_COMPACTION):
        table.upsert(table.changed(kept), **options)
    assert load_timeline(LocalStorage(table.table.path)).completed(Action.LOG_COMPACTION)


@pytest.mark.parametrize("taken_by", [drop, pytest.param(fold, marks=IN_MAKE_OPERATIONS)])
def test_entries_that_hudi_took_from_rows_that_moved_stop_us_by_name(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path, taken_by: Callable[[OperatedTable], None]
) -> None:
    """The base files of the partition have the keys still, a log file says that they are gone."""
    with operated(judge, kafka, tmp_path / "ours", "merge_on_read", "ts") as table:
        table.compacted()
        moved = table.some(3, REGION)
        above = table.above()
        table.commit([Upsert({**table.table.stream.row(key, above), "region": "region-0"}) for key in moved])
        taken_by(table)

        found = verify_table(LocalStorage(table.table.path), lambda _: None).findings
        assert found.counts[Kind.ROW_WITHOUT_ENTRY] == len(moved)
        lost = {**table.model.rows[moved[0]], "ts": above + 1, "name": "of Spark"}
        assert rows_after_sparks_upsert(judge, table, moved[0], tmp_path / "copy", lost) == 2

        pipeline = table.table.pipeline
        events = [Upsert({**table.table.stream.row(key, above + 1), "region": "region-0"}) for key in moved]
        table.table.send(events)
        said = "took the index entries of 3 keys"
        pipeline.wait("a halt", lambda: said in (pipeline.status()["coordinator"]["halted"] or ""))
        pipeline.stop()
        build_index_anew(table)
        pipeline.start()
        pipeline.flush()
        table.model.apply(events)
        table.agrees()
        table.goes_on(table.after())
        table.agrees_with_everybody()


def test_an_entry_that_was_left_behind_goes_with_the_next_partition_and_stops_nobody(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Rows that moved into log files go with their partition, and leave their entries behind. The base files
    of the partition that they came from name them still: when it is dropped, too, Hudi takes these entries.
    """
    with operated(judge, kafka, tmp_path / "ours", "merge_on_read", "ts") as table:
        table.compacted()
        moved = table.some(3, REGION)
        above = table.above()
        table.commit([Upsert({**table.table.stream.row(key, above), "region": "region-0"}) for key in moved])
        left = []
        for region in ("region-0", REGION):
            gone = table.forget(table.some(10_000, region))
            table.spark.delete_partition(region, table._as_table(gone))
            left.append(left_entries(table))
        assert left == [len(moved), 0]

        again = [Upsert({**table.table.stream.row(key, above + 1), "region": "region-0"}) for key in moved]
        table.commit(again)
        table.goes_on()
        table.agrees_with_everybody()


def restore(table: OperatedTable, kept: str) -> None:
    table.spark.restore(kept)
    table.spark.delete_savepoint(kept)


def roll_back(table: OperatedTable, kept: str) -> None:
    table.spark.delete_savepoint(kept)
    table.spark.rollback(table.newest())


@IN_MAKE_OPERATIONS
@pytest.mark.parametrize("undo", [restore, roll_back])
@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
def test_a_partition_whose_first_commit_was_undone_is_begun_anew(
    judge: HudiJudge,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    type_: str,
    undo: Callable[[OperatedTable, str], None],
) -> None:
    with operated(judge, kafka, tmp_path / "ours", type_, "ts", PartitionedIndex()) as table:
        kept = table.newest()
        table.spark.savepoint(kept)
        fresh = table.fresh("region-of-nobody")
        with table.taken_back():
            table.upsert(fresh)
            undo(table, kept)
        folder = table.table.path / RECORD_INDEX_FOLDER
        left = [path.name for path in folder.iterdir() if "of%2Dnobody" in path.name]
        table.commit([Upsert(row) for row in fresh])
        assert not [name for name in left if (folder / name).exists()]
        table.agrees_with_everybody()
        table.upsert([*table.changed([row["id"] for row in fresh]), *table.fresh("region-of-nobody")])
        table.goes_on()
        table.agrees_with_everybody()
