"""The `files` partition: merging of sizes and tombstones, and the log record of a commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError
from tidemark.hudi_format.log_file import read_blocks
from tidemark.hudi_format.metadata_table.log_records import SourcedBlock, stored_entries
from tidemark.hudi_format.metadata_table.partitions.files import (
    FILES,
    FileChange,
    ListedFiles,
    write_files_log,
)
from tidemark.hudi_format.metadata_table.record_schema import encode_record
from tidemark.hudi_format.model import ShardId

INSTANT = "20260101000000000"


def merged(*logs: bytes) -> ListedFiles:
    blocks = [block for data in logs for block in read_blocks(data, "x")]
    return FILES.merge(stored_entries(SourcedBlock(block, "x")) for block in blocks)


def log(*changes: FileChange) -> bytes:
    return write_files_log(changes, INSTANT)


def test_added_files_and_their_partitions_are_listed() -> None:
    view = merged(log(FileChange("eu", "a.parquet", 10), FileChange("us/ca", "b.parquet", 20)))
    assert view.partitions == ["eu", "us/ca"]
    assert list(view) == [("eu", "a.parquet", 10), ("us/ca", "b.parquet", 20)]
    assert view.names() == {"eu": ["a.parquet"], "us/ca": ["b.parquet"]}
    assert view.is_listed("eu")
    assert not view.is_listed("asia")
    assert view.files("asia") == {}


def test_a_table_without_partitions_uses_the_empty_path() -> None:
    view = merged(log(FileChange("", "a.parquet", 10)))
    assert view.partitions == [""]
    assert dict(view.files("")) == {"a.parquet": 10}


def test_the_larger_size_wins_and_a_tombstone_takes_a_file_away() -> None:
    view = merged(
        log(FileChange("p", "a", 10), FileChange("p", "b", 5)),
        log(FileChange("p", "a", 7), FileChange("p", "b", None)),
    )
    assert dict(view.files("p")) == {"a": 10}


def test_a_tombstone_that_meets_nothing_stays_until_it_meets_the_file() -> None:
    early = log(FileChange("p", "a", None))
    assert merged(early)._records["p"].deleted == {"a"}
    assert merged(log(FileChange("p", "a", 3)), early).files("p") == {}


def test_a_commit_of_tombstones_alone_lists_no_partition() -> None:
    assert merged(log(FileChange("p", "a", None))).partitions == []
    assert merged(log()).partitions == []


def test_a_removed_partition_record_is_gone() -> None:
    view = merged(log(FileChange("p", "a", 3)))
    view.remove("p")
    assert view.files("p") == {}


NAMES = st.text("abc", min_size=1, max_size=2)
CHANGES = st.lists(
    st.builds(FileChange, st.sampled_from(["", "p", "q/r"]), NAMES, st.none() | st.integers(1, 2**62)),
    max_size=8,
)


@given(st.lists(CHANGES, max_size=4))
def test_the_base_file_records_hold_what_the_logs_add_up_to(commits: list[list[FileChange]]) -> None:
    view = merged(*(write_files_log(changes, INSTANT) for changes in commits))
    again = ListedFiles()
    for key, value in view.records().items():
        again.apply(key, value, "", "x")
    assert list(again) == list(view)
    assert again.partitions == view.partitions


@pytest.mark.parametrize(("name", "size"), [("a", 0), ("a", -1), ("", 5), ("p/a", 5)])
def test_files_that_hudi_would_misread_are_refused(name: str, size: int) -> None:
    with pytest.raises(HudiFormatError):
        log(FileChange("p", name, size))


def test_a_record_of_another_type_is_corrupt() -> None:
    value = encode_record({"key": "", "type": 5, "filesystemMetadata": None})
    with pytest.raises(CorruptFileError, match="f.hfile"):
        ListedFiles().apply("p", value, "", "f.hfile")


def test_a_clean_lists_no_partitions_and_a_commit_without_changes_does() -> None:
    """As Hudi writes them."""

    def records(*changes: FileChange) -> int:
        return FILES.log_file(changes, INSTANT, ShardId(0))[0].upserts

    assert records(FileChange("p", "a", None), FileChange("q", "b", None)) == 2
    assert records(FileChange("p", "a", None), FileChange("q", "b", 7)) == 3
    assert records() == 1
