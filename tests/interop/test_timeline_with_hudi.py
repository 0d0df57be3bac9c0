"""The timeline, its archive and the table configuration as Hudi wrote them: our reading against Hudi's
own.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.judge import HudiJudge
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.table_config import (
    TableDefinition,
    TableType,
    read_properties,
    read_table_config,
    update_properties,
    write_properties,
)
from tidemark.hudi_format.table_repairs import drop_stats
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.timeline.clean_records import decode_clean_metadata
from tidemark.hudi_format.timeline.service_records import decode_compaction_plan
from tidemark.hudi_format.validation import check_servable

pytestmark = pytest.mark.spark

# Short histories, so that a dozen commits see compaction, cleaning and archival on both timelines.
BUSY = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.metadata.compact.max.delta.commits": "2",
    "hoodie.parquet.small.file.limit": "0",
}


def rows(first: int, count: int, version: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{n}" for n in ids],
            "region": ["eu" if n % 2 else "us" for n in ids],
            "ts": pa.array([version] * count, pa.int64()),
            "value": [f"v{version}" for _ in ids],
        }
    )


@pytest.fixture(scope="module")
def busy_table(judge: HudiJudge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("timeline") / "busy"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="MERGE_ON_READ", options=BUSY)
    for version in range(1, 12):
        judge.upsert(table, rows(version, 10, version), BUSY)
    return table


def meta_client(judge: HudiJudge, table: Path) -> Any:
    hudi = judge.spark._jvm.org.apache.hudi
    configuration = hudi.storage.hadoop.HadoopStorageConfiguration(
        judge.spark.sparkContext._jsc.hadoopConfiguration()
    )
    return (
        hudi.common.table.HoodieTableMetaClient.builder()
        .setConf(configuration)
        .setBasePath(str(table))
        .build()
    )


def described(timeline: Any) -> set[tuple[str, str, str, str | None]]:
    """(requested, action word, state, completion) of each instant of a timeline of Hudi's."""
    return {
        (each.requestedTime(), each.getAction(), each.getState().name(), each.getCompletionTime())
        for each in timeline.getInstants()
    }


@pytest.mark.parametrize("root", [".hoodie", METADATA_TABLE_ROOT])
def test_we_see_the_instants_that_hudi_sees(judge: HudiJudge, busy_table: Path, root: str) -> None:
    base = busy_table if root == ".hoodie" else busy_table / ".hoodie" / "metadata"
    ours = {
        (
            each.requested,
            each.action.completed_word if each.is_completed else each.action.value,
            each.state.name,
            each.completion,
        )
        for each in load_timeline(LocalStorage(busy_table), root).instants
    }
    assert ours == described(meta_client(judge, base).getActiveTimeline())
    assert len(ours) >= 4


@pytest.mark.parametrize("root", [".hoodie", METADATA_TABLE_ROOT])
def test_we_read_the_archive_that_hudi_wrote(judge: HudiJudge, busy_table: Path, root: str) -> None:
    storage = LocalStorage(busy_table)
    base = busy_table if root == ".hoodie" else busy_table / ".hoodie" / "metadata"
    theirs = {
        (requested, completion)
        for requested, _, _, completion in described(meta_client(judge, base).getArchivedTimeline())
        if completion is not None
    }
    archived = ArchivedTimeline(storage, root)
    assert set(archived.completion_times().items()) == theirs
    if root == ".hoodie":
        assert theirs, "the table was meant to have archived instants"
        timeline = load_timeline(storage, root)
        for instant in archived.instants():
            assert timeline.completion_time(instant.requested) == instant.completion
            assert timeline.is_committed(instant.requested)
        commits = [each for each in archived.instants() if each.action in ("commit", "deltacommit")]
        assert all(decode_commit_metadata(each.metadata, "the file").write_stats for each in commits)


def test_we_decode_every_record_on_a_timeline_of_sparks(busy_table: Path) -> None:
    storage = LocalStorage(busy_table)
    seen: set[Action] = set()
    for instant in load_timeline(storage).completed():
        folder = ".hoodie/timeline/"
        data = storage.read(folder + instant.file_name)
        seen.add(instant.action)
        if instant.action is Action.CLEAN:
            clean = decode_clean_metadata(data, instant.file_name)
            assert set(clean.deleted) <= {"eu", "us"}
            continue
        metadata = decode_commit_metadata(data, instant.file_name)
        assert metadata.compacted == (instant.action is Action.COMPACTION)
        assert all(stat.path.startswith(f"{stat.partition_path}/") for stat in metadata.stats())
        if instant.action is Action.COMPACTION:
            plan = decode_compaction_plan(
                storage.read(f"{folder}{instant.requested}.compaction.requested"),
                f"{folder}{instant.requested}.compaction.requested",
            )
            compacted = {operation.file_id for operation in plan.operations}
            assert compacted == {stat.file_id for stat in metadata.stats()}
            assert all(operation.log_files for operation in plan.operations)
    assert seen >= {Action.DELTA_COMMIT, Action.COMPACTION, Action.CLEAN}


def test_a_table_of_sparks_is_served_and_its_configuration_understood(busy_table: Path) -> None:
    config = check_servable(LocalStorage(busy_table))
    assert config.table_type is TableType.MERGE_ON_READ
    assert (config.record_key_fields, config.partition_fields) == (("id",), ("region",))
    assert config.ordering_fields == ("ts",)
    assert config.timeline_timezone == "UTC"


def test_properties_that_we_rewrote_are_read_by_hudi(judge: HudiJudge, busy_table: Path) -> None:
    storage = LocalStorage(busy_table)
    before = judge.snapshot(busy_table)
    update_properties(storage, {"tidemark.test": "a:b=c \u00fc"})
    client = meta_client(judge, busy_table)
    assert client.getTableConfig().getString("tidemark.test") == "a:b=c \u00fc"
    theirs = {str(key): str(value) for key, value in dict(client.getTableConfig().getProps()).items()}
    ours = read_properties(storage)
    assert {key: theirs.get(key) for key in ours} == ours
    judge.upsert(busy_table, rows(0, 1, 50), BUSY)
    assert read_properties(storage)["tidemark.test"] == "a:b=c \u00fc"
    assert len(judge.snapshot(busy_table)) == len(before)


def test_stats_that_spark_made_are_dropped_and_spark_goes_on(judge: HudiJudge, tmp_path: Path) -> None:
    table = tmp_path / "stats"
    stats = {
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.partition.stats.enable": "true",
    }
    judge.create_table_with_spark(table, rows(0, 10, 0), table_type="COPY_ON_WRITE", options=stats)
    storage = LocalStorage(table)
    with pytest.raises(UnsupportedTableError, match="drop-stats"):
        check_servable(storage)
    assert drop_stats(storage) == {"column_stats", "partition_stats"}
    assert check_servable(storage).metadata_partitions == {"files", "record_index"}
    assert len(judge.snapshot(table)) == 10
    judge.upsert(table, rows(5, 10, 1))
    assert len(judge.snapshot(table)) == len(judge.snapshot(table, metadata=False)) == 15
    assert read_table_config(storage).metadata_partitions == {"files", "record_index"}


@pytest.mark.parametrize("table_type", list(TableType))
def test_a_table_that_we_created_takes_sparks_first_write(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    from tidemark.hudi_format.commit.create_table import create_table

    table = tmp_path / "made"
    definition = TableDefinition(
        name="made",
        table_type=table_type,
        record_key_fields=("id",),
        partition_fields=("region",),
        ordering_fields=("ts",),
    )
    storage = LocalStorage(table)
    create_table(storage, definition)
    judge.upsert(table, rows(0, 10, 0))
    judge.upsert(table, rows(5, 10, 1))
    assert len(judge.snapshot(table)) == 15
    config = check_servable(storage)
    assert config.table_type is table_type
    assert load_timeline(storage).first_active is not None
    # Rewriting what Hudi has extended keeps every key.
    write_properties(storage, config.properties)
    assert len(judge.snapshot(table)) == 15


def test_of_two_completed_files_of_one_instant_hudi_takes_one_and_we_the_earlier(
    judge: HudiJudge, busy_table: Path, tmp_path: Path
) -> None:
    """Two executors of one plan leave them. Hudi's choice is the first of the folder's listing, which has no
    order on a local file system.
    """
    table = tmp_path / "twice"
    shutil.copytree(busy_table, table)
    timeline = table / ".hoodie" / "timeline"
    instants = load_timeline(LocalStorage(table)).instants
    both: dict[str, set[str]] = {}
    for completed in sorted(timeline.glob("*_*.*commit")):
        requested, _, rest = completed.name.partition("_")
        completion, _, word = rest.partition(".")
        later = str(int(completion) + 7)
        both[requested] = {completion, later}
        shutil.copy(completed, timeline / f"{requested}_{later}.{word}")
    assert both
    assert load_timeline(LocalStorage(table)).instants == instants
    theirs = described(meta_client(judge, table).getActiveTimeline())
    assert {requested for requested, *_ in theirs} == {each.requested for each in instants}
    for requested, _, _, ended in theirs:
        assert ended is None or ended in both.get(requested, {ended})


def test_with_an_empty_version_file_hudi_and_we_read_the_newest_manifest(
    judge: HudiJudge, busy_table: Path, tmp_path: Path
) -> None:
    table = tmp_path / "unnumbered"
    shutil.copytree(busy_table, table)
    history = table / ".hoodie" / "timeline" / "history"
    for crc in history.glob(".*.crc"):
        crc.unlink()
    (history / "_version_").write_bytes(b"")
    theirs = {
        (requested, completion)
        for requested, _, _, completion in described(meta_client(judge, table).getArchivedTimeline())
        if completion is not None
    }
    assert theirs
    assert set(ArchivedTimeline(LocalStorage(table)).completion_times().items()) == theirs
