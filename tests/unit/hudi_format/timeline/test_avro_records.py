"""Records of the timeline: round trips, null handling, damaged files, and the shape that Hudi reads."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError
from tidemark.hudi_format.timeline.avro_container import decode_container, encode_container, load_schema
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
    decode_replace_commit_metadata,
    encode_commit_metadata,
    group_stats,
)
from tidemark.hudi_format.timeline.clean_records import decode_clean_metadata
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    compaction_metrics,
    decode_compaction_plan,
    decode_rollback_metadata,
    decode_rollback_plan,
    encode_compaction_plan,
    encode_rollback_metadata,
    encode_rollback_plan,
)

STAT = WriteStat(
    file_id="f-0",
    path="p/.f-0_1.log.1_0-0-0",
    partition_path="p",
    prev_commit="1",
    num_writes=3,
    num_deletes=1,
    file_size_in_bytes=2**40,
    log_version=1,
    log_offset=0,
    base_file="f-0_0-0-0_0.parquet",
    log_files=(".f-0_1.log.1_0-0-0",),
)
METADATA = CommitMetadata(
    write_stats=group_stats([STAT, WriteStat(file_id="e-0", path="x", partition_path="")]),
    extra_metadata={"schema": '{"type":"record"}', "tidemark.epoch": "7"},
)


def test_commit_metadata_survives_a_round_trip_and_encodes_to_the_same_bytes() -> None:
    data = encode_commit_metadata(METADATA)
    assert decode_commit_metadata(data, "the file") == METADATA
    reordered = CommitMetadata(
        write_stats=dict(reversed(list(METADATA.write_stats.items()))),
        extra_metadata=dict(reversed(list(METADATA.extra_metadata.items()))),
    )
    assert encode_commit_metadata(reordered) == data
    assert [stat.path for stat in METADATA.stats()] == ["x", "p/.f-0_1.log.1_0-0-0"]


def test_the_container_holds_hudis_record_with_every_field_and_no_codec() -> None:
    reader = fastavro.reader(io.BytesIO(encode_commit_metadata(METADATA)))
    assert reader.codec == "null"
    schema: Any = reader.writer_schema
    assert schema["name"] == "org.apache.hudi.avro.model.HoodieCommitMetadata"
    record: Any = next(reader)
    stat = record["partitionToWriteStats"]["p"][0]
    stat_schema = load_schema("commit-metadata")["fields"][0]["type"][1]["values"]["items"]
    assert list(stat) == [field["name"] for field in stat_schema["fields"]]
    assert len(stat) == 31
    assert (stat["fileSizeInBytes"], stat["logVersion"], stat["numWrites"]) == (2**40, 1, 3)
    assert stat["logFiles"] == [".f-0_1.log.1_0-0-0"]
    assert stat["runtimeStats"] is None


def test_a_container_is_byte_for_byte_what_fastavro_itself_writes() -> None:
    data = encode_commit_metadata(METADATA)
    whole = io.BytesIO()
    fastavro.writer(
        whole,
        load_schema("commit-metadata"),
        [next(fastavro.reader(io.BytesIO(data)))],
        codec="null",
        sync_marker=data[-16:],
    )
    assert data == whole.getvalue()


def test_null_counters_read_as_zero_and_null_texts_as_none() -> None:
    record = {
        "partitionToWriteStats": {"p": [{"fileId": "f", "path": "p/f", "partitionPath": "p"}]},
        "compacted": None,
        "extraMetadata": None,
        "version": None,
        "operationType": None,
    }
    sink = io.BytesIO()
    fastavro.writer(sink, load_schema("commit-metadata"), [record])
    (stat,) = decode_commit_metadata(sink.getvalue(), "the file").stats()
    assert stat == WriteStat(file_id="f", path="p/f", partition_path="p", prev_commit=None)


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"{}", b"Obj\x01" + b"\xff" * 200, b"\0" * 64])
def test_damaged_files_are_corrupt_not_crashes(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="some-file"):
        decode_commit_metadata(data, "some-file")


def test_truncation_anywhere_is_noticed() -> None:
    data = encode_commit_metadata(METADATA)
    for length in range(len(data)):
        with pytest.raises(CorruptFileError):
            decode_commit_metadata(data[:length], "the file")


def test_another_kind_of_record_is_corrupt() -> None:
    plan = encode_compaction_plan(RequestedCompaction(operations=()))
    with pytest.raises(CorruptFileError):
        decode_commit_metadata(plan, "the file")
    with pytest.raises(CorruptFileError):
        decode_rollback_plan(plan, "the file")
    with pytest.raises(CorruptFileError):
        decode_rollback_metadata(plan, "the file")


def test_a_record_that_does_not_fit_the_schema_is_refused() -> None:
    with pytest.raises(HudiFormatError):
        encode_container("rollback-plan", {"instantToRollback": {"commitTime": 1, "action": "x"}})


def test_a_replacecommit_is_a_commit_and_what_it_replaces() -> None:
    record = decode_container(encode_commit_metadata(METADATA), "commit")
    record["partitionToReplaceFileIds"] = {"p": ["a-0", "b-0"], "": []}
    metadata = decode_replace_commit_metadata(encode_container("replace-commit-metadata", record), "the file")
    assert metadata.commit == METADATA
    assert metadata.replaced_file_ids == {"p": ("a-0", "b-0"), "": ()}


def test_rollback_plan_and_metadata_survive_a_round_trip() -> None:
    request = RollbackRequest(
        partition_path="p", file_id="f", latest_base_instant="2", files_to_delete=("/base/p/a", "/base/p/b")
    )
    plan = RollbackPlan(instant_to_rollback="2", action="deltacommit", requests=(request,))
    assert decode_rollback_plan(encode_rollback_plan(plan), "the file") == plan
    metadata = RollbackMetadata(
        start_rollback_time="3",
        time_taken_ms=5,
        rolled_back=(("2", "deltacommit"),),
        partitions=(RollbackPartition(partition_path="p", deleted=("/base/p/a",), failed=("/base/p/b",)),),
    )
    assert decode_rollback_metadata(encode_rollback_metadata(metadata), "the file") == metadata


def test_a_compaction_plan_that_hudi_could_not_execute_is_not_written() -> None:
    """Without the size of the log files whoever executes it dies, and with that every write of Hudi."""
    operation = CompactionOperation(
        partition_path="p", file_id="f", base_instant="2", log_files=(), metrics={"TOTAL_LOG_FILES": 1.0}
    )
    with pytest.raises(HudiFormatError, match="TOTAL_LOG_FILES_SIZE"):
        encode_compaction_plan(RequestedCompaction(operations=(operation,)))


def test_compaction_plan_survives_a_round_trip_and_version_1_is_refused() -> None:
    operation = CompactionOperation(
        partition_path="p",
        file_id="f",
        base_instant="2",
        log_files=(".f_3.log.1_0-0-0",),
        metrics=compaction_metrics(1, 3 << 20, 5 << 20),
    )
    plan = RequestedCompaction(operations=(operation,), extra_metadata={"k": "v"})
    assert decode_compaction_plan(encode_compaction_plan(plan), "the file") == plan
    assert dict(operation.metrics) == {
        "TOTAL_LOG_FILES": 1.0,
        "TOTAL_LOG_FILES_SIZE": float(3 << 20),
        "TOTAL_IO_READ_MB": 8.0,
        "TOTAL_IO_WRITE_MB": 5.0,
        "TOTAL_IO_MB": 13.0,
    }
    record: dict[str, Any] = {
        "operations": [],
        "extraMetadata": None,
        "version": 1,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": None,
    }
    with pytest.raises(CorruptFileError, match="version 1"):
        decode_compaction_plan(encode_container("compaction-plan", record), "the file")


def test_clean_metadata_is_read() -> None:
    partition = {
        "partitionPath": "p",
        "policy": "KEEP_LATEST_COMMITS",
        "deletePathPatterns": [],
        "successDeleteFiles": ["a", "b"],
        "failedDeleteFiles": [],
        "isPartitionDeleted": True,
    }
    record = {
        "startCleanTime": "5",
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 2,
        "earliestCommitToRetain": "4",
        "lastCompletedCommitTimestamp": "5",
        "partitionMetadata": {
            "p": partition,
            "q": {**partition, "partitionPath": "q", "isPartitionDeleted": None},
        },
        "version": 2,
        "bootstrapPartitionMetadata": None,
        "extraMetadata": None,
    }
    metadata = decode_clean_metadata(encode_container("clean-metadata", record), "the file")
    assert metadata.earliest_commit_to_retain == "4"
    assert metadata.deleted == {"p": ("a", "b"), "q": ("a", "b")}
    assert metadata.deleted_partitions == {"p"}
