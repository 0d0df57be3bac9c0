"""Compactions of the metadata table and savepoints that Hudi 1.2.0 made on Spark: we plan the same, and our
records say the same.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from tidemark.hudi_format.key_digest import DIGESTS_KEY
from tidemark.hudi_format.metadata_table.partitions import PARTITIONS
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.storage.base import join_path, name_of
from tidemark.hudi_format.table_services.compaction_planning import plan_index_compaction
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOutcome
from tidemark.hudi_format.table_services.records import compaction_metadata, requested_compaction
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_container import decode_container
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata, encode_commit_metadata
from tidemark.hudi_format.timeline.clean_records import decode_savepoint
from tidemark.hudi_format.timeline.service_records import (
    COMPACTION_PLAN_VERSION,
    decode_compaction_plan,
    encode_compaction_plan,
)

GOLDEN = Path(__file__).parent
TABLES = ("operations/restored", "operations/restored_to_start", "operations/log_compacted")
# Hudi counts by its own reading of the logs, and times itself.
COUNTERS = {
    "numWrites", "numInserts", "numUpdateWrites", "numDeletes", "totalLogRecords", "totalLogBlocks",
    "totalUpdatedRecordsCompacted", "totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted",
    "runtimeStats",
}  # fmt: skip


def table(name: str, folder: Path) -> LocalStorage:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(folder)
    return LocalStorage(str(folder))


def compactions(storage: LocalStorage) -> list[tuple[CompactionPlan, Any, str]]:
    """(our plan for the instant of a compaction by Spark, Spark's plan as a record, its completed file)."""
    validity = InstantValidity(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))
    files = {
        each.name: {info.name: info.size for info in storage.list(f"{METADATA_TABLE_PATH}/{each.name}")}
        for each in PARTITIONS
    }
    found = []
    for instant in validity.metadata.completed(Action.COMPACTION):
        folder = join_path(METADATA_TABLE_ROOT, "timeline")
        requested = f"{folder}/{instant.requested}.compaction.requested"
        # What happened afterwards does not matter to a plan of that time.
        plan = plan_index_compaction(validity, files, instant.requested)
        assert isinstance(plan, CompactionPlan)
        found.append(
            (plan, decode_container(storage.read(requested), requested), f"{folder}/{instant.file_name}")
        )
    return found


@pytest.mark.parametrize("name", TABLES)
def test_we_plan_what_spark_planned(name, tmp_path):
    storage = table(name, tmp_path)
    planned = compactions(storage)
    assert planned
    for ours, theirs, _ in planned:
        record = decode_container(encode_compaction_plan(requested_compaction(ours)), "ours")
        assert theirs["version"] == COMPACTION_PLAN_VERSION
        for each in (record, theirs):
            each["operations"].sort(key=lambda operation: operation["fileId"])
        assert record == theirs


@pytest.mark.parametrize("name", TABLES)
def test_our_metadata_of_a_compaction_has_sparks_fields(name, tmp_path):
    storage = table(name, tmp_path)
    for plan, _, completed in compactions(storage):
        theirs = decode_container(storage.read(completed), completed)
        stats = decode_commit_metadata(storage.read(completed), completed).stats()
        numbers = {each.file_id: number for number, each in plan.kept()}
        outcomes = [
            MergeOutcome(
                numbers[each.file_id], name_of(each.path), each.file_size_in_bytes, each.num_writes,
                0, 0, 0, 0, 0, 0,
            )
            for each in stats
        ]  # fmt: skip
        ours = decode_container(encode_commit_metadata(compaction_metadata(plan, outcomes)), "ours")
        assert set(ours["extraMetadata"]) == {*theirs["extraMetadata"], DIGESTS_KEY}
        del ours["extraMetadata"], theirs["extraMetadata"]
        assert comparable(ours) == comparable(theirs)


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """The record without counters; what Hudi has as null and we as 0 is left out."""
    for stats in record["partitionToWriteStats"].values():
        stats.sort(key=lambda each: each["fileId"])
        for stat in stats:
            for name in COUNTERS:
                del stat[name]
            if not stat["totalLogFiles"]:
                del stat["totalLogFiles"]
    return record


def test_a_decoded_plan_of_spark_is_encoded_again_as_it_was(tmp_path):
    for _, theirs, completed in compactions(table("operations/restored", tmp_path)):
        requested = completed.replace(name_of(completed), f"{name_of(completed)[:17]}.compaction.requested")
        plan = decode_compaction_plan(LocalStorage(str(tmp_path)).read(requested), requested)
        assert decode_container(encode_compaction_plan(plan), "ours") == theirs


def test_the_files_of_a_savepoint_of_spark_are_read(tmp_path):
    storage = table("operations/restored", tmp_path)
    (saved,) = load_timeline(storage).completed(Action.SAVEPOINT)
    path = f".hoodie/timeline/{saved.file_name}"
    kept = decode_savepoint(storage.read(path), path)
    for partition, names in kept.items():
        there = {info.name for info in storage.list(partition)}
        assert names
        assert set(names) <= there
    assert set(kept) == {"eu", "us"}
