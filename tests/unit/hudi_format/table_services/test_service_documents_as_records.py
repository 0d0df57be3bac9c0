"""The records that Hudi's timelines get of a compaction and of a clean."""

from __future__ import annotations

from tests.unit.hudi_format.table_services.test_operations import T, outcome, plan
from tidemark.hudi_format.key_digest import DIGESTS_KEY, parse_digests
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.table_services.operations import CleanPlan, decode_clean, encode_plan
from tidemark.hudi_format.table_services.records import (
    clean_metadata,
    cleaned_files,
    compacted_files,
    compaction_metadata,
    requested_clean,
    requested_compaction,
)
from tidemark.hudi_format.timeline.avro_container import decode_container
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata, encode_commit_metadata
from tidemark.hudi_format.timeline.clean_records import (
    decode_clean_metadata,
    decode_clean_plan,
    encode_clean_metadata,
    encode_clean_plan,
)
from tidemark.hudi_format.timeline.service_records import decode_compaction_plan, encode_compaction_plan

CLEAN = CleanPlan(
    T,
    False,
    {"": ("a", "b"), "p": ("c",)},
    "20261128002959000",
    ("20261128002900000", "deltacommit"),
    ("20261128001500000",),
)


def test_a_requested_compaction_has_all_metrics_and_the_missing_partitions():
    requested = requested_compaction(plan())
    record = decode_container(encode_compaction_plan(requested), "the file")
    first = record["operations"][0]
    assert first["metrics"] == {
        "TOTAL_LOG_FILES": 1.0,
        "TOTAL_LOG_FILES_SIZE": 10.0,
        "TOTAL_IO_READ_MB": 0.0,
        "TOTAL_IO_WRITE_MB": 120.0,
        "TOTAL_IO_MB": 120.0,
    }
    assert (record["missingSchedulePartitions"], record["preserveHoodieMetadata"]) == (["r1"], False)
    assert decode_compaction_plan(encode_compaction_plan(requested), "the file") == requested


def test_operations_that_were_dropped_are_in_no_record():
    dropped = plan().without([0], ["r0", "r1"])
    assert [each.file_id for each in requested_compaction(dropped).operations] == ["f1-0"]
    assert [each.name for each in compacted_files(dropped, (outcome(0), outcome(1)))] == [outcome(1).name]
    (stat,) = compaction_metadata(dropped, (outcome(0), outcome(1))).stats()
    assert stat.file_id == "f1-0"


def test_the_metadata_of_a_compaction_has_schema_and_digests_and_no_version():
    metadata = compaction_metadata(plan(), (outcome(0), outcome(1)))
    content = encode_commit_metadata(metadata)
    record = decode_container(content, "the file")
    assert (record["compacted"], record["version"], record["operationType"]) == (True, None, "COMPACT")
    extra = dict(record["extraMetadata"])
    digests = parse_digests(extra.pop(DIGESTS_KEY))
    assert digests == {
        plan().operations[each.ordinal].file_id: (each.digest_count, each.digest_sum)
        for each in (outcome(0), outcome(1))
    }
    assert extra == {"schema": plan().schema}
    assert decode_commit_metadata(content, "the file") == metadata
    stat = metadata.stats()[0]
    assert (stat.prev_commit, stat.prev_base_file, stat.log_files) == ("null", None, None)
    assert (stat.num_writes, stat.file_size_in_bytes, stat.total_log_size_compacted) == (3, 900, 10)


def test_a_clean_is_told_as_a_plan_with_absolute_paths_and_as_names_that_are_gone():
    requested = requested_clean(CLEAN, "/data/t")
    assert requested.files == {"": ("/data/t/a", "/data/t/b"), "p": ("/data/t/p/c",)}
    assert requested.extra_metadata == {"savepointed_timestamps": "20261128001500000"}
    assert decode_clean_plan(encode_clean_plan(requested), "the file") == requested
    done = clean_metadata(CLEAN, "20261128003000250")
    assert decode_clean_metadata(encode_clean_metadata(done), "the file") == done
    assert (done.time_taken_ms, done.earliest_commit_to_retain) == (250, "20261128002900000")
    # Hudi's next clean looks into the completed file for savepoints that are gone since.
    assert done.extra_metadata == requested.extra_metadata
    assert cleaned_files(CLEAN) == [
        FileChange("", "a", None),
        FileChange("", "b", None),
        FileChange("p", "c", None),
    ]


def test_a_clean_that_left_files_behind_names_no_instant():
    left = CleanPlan(T, True, {"files": ("a",)}, "")
    requested = requested_clean(left, "/data/t")
    assert requested.files == {"files": ("/data/t/.hoodie/metadata/files/a",)}
    assert decode_container(encode_clean_plan(requested), "x")["earliestInstantToRetain"] is None
    assert clean_metadata(left, "20261128003000250").earliest_commit_to_retain == ""


def test_a_clean_plan_comes_back_as_it_was_stored():
    assert decode_clean(encode_plan(CLEAN), "p") == CLEAN
    assert CLEAN.paths("m") == ["m/a", "m/b", "m/p/c"]
