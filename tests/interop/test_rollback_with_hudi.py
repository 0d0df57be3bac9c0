"""A native write that died, rolled back natively: Hudi reads, writes and checks the table afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.spark_operations import SparkOperations
from tests.interop.test_timeline_with_hudi import rows
from tests.interop.verdict import assert_verify_agrees
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import Marker, MarkerType, create_marker, create_marker_list
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.stream_runtime.clock import SystemClock

pytestmark = pytest.mark.spark


def died(
    storage: LocalStorage, action: Action, reached: str, listed: bool = False
) -> tuple[str, InstantGenerator]:
    """A write with a copied base file in a new file group, dead at a step of its commit on the metadata
    table.
    """
    generator = InstantGenerator(SystemClock())
    generator.observe(load_timeline(storage).times() + load_timeline(storage, METADATA_TABLE_ROOT).times())
    instant = generator.next()
    planned = encode_commit_metadata(CommitMetadata())
    storage.touch(heartbeat.heartbeat_path(instant))
    create_inflight(Unfenced(storage), create_requested(Unfenced(storage), instant, action), planned)
    donor = next(info for info in storage.walk("eu") if info.name.endswith(".parquet"))
    name = f"eu/{'0' * 8}-0000-4000-8000-{'0' * 12}-0_0-0-0_{instant}.parquet"
    if listed:
        # The other data file never came into being.
        never = name.replace("8000", "8001")
        create_marker_list(Unfenced(storage), instant, 3, [Marker(each, "CREATE") for each in (name, never)])
        create_marker_list(
            Unfenced(storage), instant, 11, [Marker("us/x-0_0-0-0_" + instant + ".parquet", "CREATE")]
        )
    else:
        create_marker(Unfenced(storage), instant, name, MarkerType.CREATE)
    storage.create(name, storage.read(donor.path))
    if reached != "data":
        log = f"{RECORD_INDEX_FOLDER}/.record-index-0000-0_{instant}.log.1_0-0-0"
        donor_log = next(info for info in storage.walk(RECORD_INDEX_FOLDER) if ".log." in info.name)
        storage.create(log, storage.read(donor_log.path))
        started = create_requested(Unfenced(storage), instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
        started = create_inflight(Unfenced(storage), started, planned, root=METADATA_TABLE_ROOT)
        if reached == "metadata-completed":
            complete(Unfenced(storage), started, generator.next(), planned, root=METADATA_TABLE_ROOT)
    return instant, generator


@pytest.mark.parametrize("reached", ["data", "metadata-inflight", "metadata-completed"])
@pytest.mark.parametrize(
    ("table_type", "action"), [("MERGE_ON_READ", Action.DELTA_COMMIT), ("COPY_ON_WRITE", Action.COMMIT)]
)
def test_hudi_goes_on_after_a_native_rollback(
    judge: HudiJudge, tmp_path: Path, table_type: str, action: Action, reached: str
) -> None:
    table = tmp_path / "rolled"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type=table_type)
    judge.upsert(table, rows(0, 5, 1))
    storage = LocalStorage(table)
    before = sorted(judge.snapshot(table), key=lambda row: str(row["id"]))
    index_before = judge.record_index(table)
    instant, generator = died(storage, action, reached)
    assert_verify_agrees(table, 20)
    assert sorted(judge.snapshot(table), key=lambda row: str(row["id"])) == before
    outcome = rollback_pending(Unfenced(storage), instant, generator)
    assert outcome.rollback_instant is not None
    assert [info.path for info in storage.walk("") if instant in info.name] == []
    for metadata in (True, False):
        found = judge.snapshot(table, metadata=metadata)
        assert sorted(found, key=lambda row: str(row["id"])) == before
    assert judge.record_index(table) == index_before
    assert_verify_agrees(table, 20)
    judge.upsert(table, rows(10, 20, 2))
    assert len(judge.snapshot(table)) == len(judge.snapshot(table, metadata=False)) == 30
    assert len(judge.record_index(table)) == 30
    assert_verify_agrees(table, 30)
    assert load_timeline(storage).pending() == ()


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_an_overwrite_of_hudis_whose_writer_died_is_rolled_back(
    judge: HudiJudge, tmp_path: Path, table_type: str
) -> None:
    """A copy of the table has what INSERT_OVERWRITE writes before it commits: its writer is dead there."""
    living, table = tmp_path / "living", tmp_path / "dead"
    judge.create_table_with_spark(living, rows(0, 20, 0), table_type=table_type)
    before = sorted(judge.snapshot(living), key=lambda row: str(row["id"]))
    spark = SparkOperations(judge, living, foreign_writer_options(str(living)))
    with spark.in_flight(rows(40, 4, 1), "insert_overwrite"):
        shutil.copytree(living, table)
    spark.close()
    storage = LocalStorage(table)
    [pending] = load_timeline(storage).pending()
    assert pending.action is Action.REPLACE_COMMIT
    assert [info.path for info in storage.walk("eu") if pending.requested in info.name]
    generator = InstantGenerator(SystemClock())
    generator.observe(load_timeline(storage).times() + load_timeline(storage, METADATA_TABLE_ROOT).times())
    assert rollback_pending(Unfenced(storage), pending.requested, generator).rollback_instant is not None
    assert [info.path for info in storage.walk("") if pending.requested in info.name] == []
    for metadata in (True, False):
        found = judge.snapshot(table, metadata=metadata)
        assert sorted(found, key=lambda row: str(row["id"])) == before
    assert_verify_agrees(table, 20)
    judge.upsert(table, rows(10, 20, 2))
    assert len(judge.snapshot(table)) == len(judge.record_index(table)) == 30
    assert_verify_agrees(table, 30)
    assert load_timeline(storage).pending() == ()


@pytest.mark.parametrize("listed", [False, True])
def test_hudi_rolls_a_dead_native_write_back_by_its_markers(
    judge: HudiJudge, tmp_path: Path, listed: bool
) -> None:
    table = tmp_path / "dead"
    judge.create_table_with_spark(table, rows(0, 20, 0), table_type="MERGE_ON_READ")
    storage = LocalStorage(table)
    instant, _ = died(storage, Action.DELTA_COMMIT, "data", listed)
    assert len([info for info in storage.walk("eu") if instant in info.name]) == 1
    # A single writer on its own rolls every pending write back before it writes.
    judge.upsert(table, rows(0, 5, 1))
    assert [info.path for info in storage.walk("eu") if instant in info.name] == []
    assert load_timeline(storage).find(instant) is None
    assert len(judge.snapshot(table)) == len(judge.record_index(table)) == 20
    assert_verify_agrees(table, 20)
