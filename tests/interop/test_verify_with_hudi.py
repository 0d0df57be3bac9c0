"""`tidemark verify` and Hudi on Spark about the same damaged tables: what verify names, and what Hudi's
readers make of it. (On sound tables they are compared wherever `assert_record_index_is_data` is called.)
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.hudi_options import shared_lock_options
from tests.interop.judge import HudiJudge
from tests.interop.verdict import assert_record_index_is_data, assert_verify_agrees
from tests.unit.table_files import existing_table, orders
from tests.unit.table_verification.damage import DAYS, Damage, changed_table, epoch_commit
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.table_verification.findings import Findings, Kind
from tidemark.table_verification.verify import verify_table

pytestmark = pytest.mark.spark

ROWS = 59
INDEX_OFF = {
    "hoodie.metadata.global.record.level.index.enable": "false",
    "hoodie.index.type": "GLOBAL_SIMPLE",
}
NOWHERE = "00000000-0000-4000-8000-000000000000-0"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    changed_table(path, TableType.MERGE_ON_READ)
    return path


def found(path: Path) -> Findings:
    return verify_table(LocalStorage(path), lambda _: None).findings


def count(judge: HudiJudge, path: Path, *, metadata: bool = True) -> int:
    """Rows of a snapshot by Spark, files listed through the metadata table or from the storage."""
    return len(judge.snapshot(path, metadata=metadata))


def ids_found(judge: HudiJudge, path: Path, key: str) -> list[str]:
    """What `id = key` finds, by Hudi's pruning with the record index."""
    return [row["id"] for row in judge.lookup(path, "id", key).rows]


@pytest.mark.parametrize("table_type", list(TableType), ids=lambda each: each.value)
def test_spark_that_upserts_compacts_and_cleans_leaves_nothing_to_find(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    path = tmp_path / "orders"
    writer = changed_table(path, table_type)
    assert_verify_agrees(path, ROWS)
    judge.upsert(path, orders(("k4", DAYS[1], 30), ("new", DAYS[2], 30), ("k6", DAYS[1], 30)))
    assert_record_index_is_data(judge, path)
    before = len(Damage(path).files(log=False))
    if table_type is TableType.MERGE_ON_READ:
        assert [each["state"] for each in judge.compact(path, shared_lock_options(path))] == ["COMPLETED"]
        assert_verify_agrees(path, ROWS + 1)
        assert len(Damage(path).files(log=False)) > before
    judge.clean(path)
    assert len(Damage(path).files(log=False)) <= before
    assert_record_index_is_data(judge, path)
    writer.commit(orders(("k4", DAYS[2], 40), ("newer", DAYS[0], 40)), [("k7", 40)])
    assert_record_index_is_data(judge, path)


def test_deleted_entry_hides_the_row_from_hudis_lookup(judge: HudiJudge, table: Path) -> None:
    assert ids_found(judge, table, "k4") == ["k4"]
    Damage(table).index("k4", None)
    assert set(found(table).counts) == {Kind.ROW_WITHOUT_ENTRY}
    assert ids_found(judge, table, "k4") == []
    assert count(judge, table) == ROWS, "a scan has the row that the lookup has not"


def test_index_that_spark_builds_anew_mends_what_verify_found(judge: HudiJudge, tmp_path: Path) -> None:
    """What docs/failure-walkthrough.md says to do."""
    path = tmp_path / "orders"
    changed_table(path, TableType.COPY_ON_WRITE)
    damage = Damage(path)
    damage.index("k4", None)
    damage.index("nobody", damage.location_of("k3"))
    assert set(found(path).counts) == {Kind.ROW_WITHOUT_ENTRY, Kind.ENTRY_WITHOUT_ROW}
    judge.upsert(path, orders(("k7", DAYS[1], 50)), INDEX_OFF)
    assert not (path / RECORD_INDEX_FOLDER).exists()
    judge.upsert(path, orders(("k8", DAYS[2], 50)))
    assert_record_index_is_data(judge, path)


def test_wrong_file_id_hides_the_row_from_hudis_lookup(judge: HudiJudge, table: Path) -> None:
    damage = Damage(table)
    damage.index("k4", damage.location_of("k3"))
    findings = found(table)
    assert set(findings.counts) == {Kind.ENTRY_ELSEWHERE}
    assert damage.location_of("k3").file_id in findings.examples[Kind.ENTRY_ELSEWHERE][0]
    assert ids_found(judge, table, "k4") == []
    assert count(judge, table) == ROWS


def test_entries_too_many_are_in_hudis_index_as_well(judge: HudiJudge, table: Path) -> None:
    damage = Damage(table)
    damage.index("nobody", damage.location_of("k4"))
    damage.index("k59", RecordLocation(DAYS[0], NOWHERE))
    findings = found(table)
    assert findings.counts == {Kind.ENTRY_WITHOUT_ROW: 2}
    shown = sorted(each.partition(":")[0] for each in findings.examples[Kind.ENTRY_WITHOUT_ROW])
    assert shown == ["k59", "nobody"]
    with pytest.raises(AssertionError, match=r"left over \['k59', 'nobody'\]"):
        assert_record_index_is_data(judge, table, verify=False)
    assert ids_found(judge, table, "nobody") == []


def test_key_that_is_there_twice_is_twice_in_hudis_snapshot(judge: HudiJudge, table: Path) -> None:
    Damage(table).index("k4", None)
    # To the writer the key is new now.
    existing_table(table).commit(orders(("k4", DAYS[2], 30)))
    findings = found(table)
    assert findings.counts[Kind.KEY_TWICE] == 1
    assert findings.examples[Kind.KEY_TWICE][0].startswith("k4: in ")
    keys = Counter(row["id"] for row in judge.snapshot(table))
    assert [key for key, times in keys.items() if times > 1] == ["k4"]
    assert ids_found(judge, table, "k4") == ["k4"], "the lookup finds one of them"


def test_orphan_of_a_committed_instant_is_rows_to_hudi_where_it_lists_files(
    judge: HudiJudge, table: Path
) -> None:
    damage = Damage(table)
    source = damage.files(log=False)[0]
    file_id = parse_data_file(source.rpartition("/")[2]).file_id
    orphan = damage.copy_as(source, file_id, NOWHERE)
    findings = found(table)
    assert findings.examples[Kind.FILE_NOT_LISTED] == [orphan]
    assert findings.counts[Kind.KEY_TWICE] == 20
    assert count(judge, table) == ROWS
    assert count(judge, table, metadata=False) == ROWS + 20


def test_orphan_of_no_instant_is_invisible_to_hudi_until_archival(judge: HudiJudge, table: Path) -> None:
    damage = Damage(table)
    source = damage.files(log=False)[0]
    instant = parse_data_file(source.rpartition("/")[2]).instant
    orphan = damage.copy_as(source, instant, f"{int(instant) + 1}")
    findings = found(table)
    assert set(findings.counts) == {Kind.ORPHAN_FILE}
    assert findings.examples[Kind.ORPHAN_FILE][0].startswith(orphan)
    assert count(judge, table) == count(judge, table, metadata=False) == ROWS


@pytest.mark.parametrize("log", [True, False], ids=["log", "base"])
def test_missing_file_makes_hudis_read_fail_or_loses_its_rows(
    judge: HudiJudge, table: Path, log: bool
) -> None:
    damage = Damage(table)
    gone = damage.remove(damage.files(log)[0])
    findings = found(table)
    assert findings.examples[Kind.FILE_MISSING] == [gone]
    assert (Kind.ENTRY_WITHOUT_ROW in findings.counts) is not log
    with pytest.raises(Exception, match=r"(?s)FileNotFound|does not exist|no such file"):
        count(judge, table)
    if not log:
        # Without the base file only the keys in the log are left.
        assert count(judge, table, metadata=False) < ROWS


def test_files_partition_that_is_wrong_hides_rows_from_hudi_or_fails_its_read(
    judge: HudiJudge, table: Path
) -> None:
    damage = Damage(table)
    victim = damage.files(log=True)[0]
    damage.files_say(victim, None)
    assert found(table).examples == {Kind.FILE_NOT_LISTED: [victim]}
    updated = sum(row["at"] == 20 for row in judge.snapshot(table))
    assert updated < sum(row["at"] == 20 for row in judge.snapshot(table, metadata=False))
    base = damage.files(log=False)[0]
    ghost = base.replace(parse_data_file(base.rpartition("/")[2]).file_id, NOWHERE)
    damage.files_say(ghost, 1_000)
    assert found(table).examples[Kind.FILE_MISSING] == [ghost]
    with pytest.raises(Exception, match=r"(?s)FileNotFound|does not exist|no such file"):
        count(judge, table)


def test_gap_in_source_offsets_is_nothing_to_hudi(judge: HudiJudge, table: Path) -> None:
    epoch_commit(table, 1, (0, 5))
    epoch_commit(table, 2, (7, 9))
    findings = found(table)
    assert findings.counts == {Kind.OFFSETS_GAP: 2}
    assert "orders-in:0 is [7, 9), epoch 1 " in findings.examples[Kind.OFFSETS_GAP][1]
    assert_record_index_is_data(judge, table, verify=False)
    assert count(judge, table) == ROWS
