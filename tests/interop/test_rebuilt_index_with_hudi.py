"""docs/adr/0016-rebuild-index.md: what Hudi on Spark reads at each step of a switch to a rebuilt index, and
that it writes on behind it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.read_table import ReadTable
from tests.interop.served_story import takes_minutes
from tests.interop.spark_operations import SparkOperations
from tests.interop.verdict import assert_record_index_is_data
from tests.unit.index_rebuilds import KilledError, held_term, killed_at, rebuild
from tests.unit.table_files import orders
from tests.unit.table_verification.damage import DAYS, changed_table
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.table_services.rebuilding.switching import RebuildFailpoint, settle

pytestmark = pytest.mark.spark

# More shards than keys: some of the new file groups have no entry.
FORMER, WANTED = 2, 128
STEPS = list(RebuildFailpoint)


@pytest.mark.parametrize(
    ("table_type", "steps"),
    [
        (
            TableType.MERGE_ON_READ,
            [RebuildFailpoint.AFTER_EACH_SHARD_FILE, RebuildFailpoint.AFTER_INDEX_SWITCHED],
        ),
        pytest.param(TableType.MERGE_ON_READ, STEPS, marks=takes_minutes),
        pytest.param(TableType.COPY_ON_WRITE, STEPS, marks=takes_minutes),
    ],
    ids=["representative", "every-step-mor", "every-step-cow"],
)
def test_spark_reads_one_of_both_indexes_at_each_step_and_writes_on(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, steps: list[RebuildFailpoint]
) -> None:
    path = tmp_path / "orders"
    writer = changed_table(path, table_type)
    storage = LocalStorage(path)
    for number, step in enumerate(steps):
        with pytest.raises(KilledError):
            rebuild(path, WANTED, killed_at(step), term=2 * number + 1)
        assert_spark_finds_all(judge, path)
        with held_term(path, 2 * number + 2) as term:
            settle(term, MetadataTableSnapshot.load(storage).num_shards)
        assert_spark_finds_all(judge, path)
        writer.commit(orders((f"k{number}", DAYS[0], 40), (f"native{number}", DAYS[1], 1)))
    assert MetadataTableSnapshot.load(storage).num_shards == WANTED

    spark = SparkOperations(judge, path, foreign_writer_options(str(path), WANTED))
    try:
        spark.write(orders(("k1", DAYS[0], 50), ("native0", DAYS[1], 50), ("spark", DAYS[2], 1)), "upsert")
        assert_record_index_is_data(judge, path)
        # Hudi compacts the metadata table with its next write.
        spark.write(
            orders(("spark", DAYS[2], 60), ("again", DAYS[2], 1)),
            "upsert",
            **{"hoodie.metadata.compact.max.delta.commits": "1"},
        )
    finally:
        spark.close()
    assert MetadataTableSnapshot.load(storage).num_shards == WANTED
    assert_record_index_is_data(judge, path)
    writer.commit(orders(("spark", DAYS[2], 70), ("last", DAYS[0], 1)), [("again", 90)])
    assert_record_index_is_data(judge, path)


def assert_spark_finds_all(judge: HudiJudge, path: Path) -> None:
    """Snapshot, record index and a look-up of Spark agree with what our own readers see. The timeline may
    lack files that a successor adds, which `tidemark verify` would name.
    """
    assert_record_index_is_data(judge, path, verify=False)
    for key in ("k0", "k58"):
        found = judge.lookup(path, "id", key)
        assert [row["id"] for row in found.rows] == [key]
        assert found.rows
    assert judge.lookup(path, "id", "k59").rows == []
    assert judge.record_index(path) == {
        key: (place.partition_path, place.file_id) for key, place in ReadTable(path).record_index().items()
    }
