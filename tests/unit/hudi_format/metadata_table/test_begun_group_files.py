"""The files of groups with which a commit begins partitions: which they are, that they come and go as a
whole, and which groups of a table Hudi does not see.
"""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.metadata_table.test_partitioned_index import entries_of
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.metadata_table.begun_groups import (
    CommitLogs,
    check_not_begun,
    hidden_groups,
    left_groups,
    prepare_begun,
    take_back_begun,
)
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedLayout
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.publication.unfenced import Unfenced

T1, T2, T3 = (f"2026010100000000{number}" for number in range(3))
BEFORE = PartitionedLayout({"eu": 2})
AFTER = BEFORE.begun(["us"], 2)
CHANGES = entries_of({("eu", "a"): 1, ("us", "a"): 2})


def test_the_files_of_begun_groups_are_told_from_the_others() -> None:
    logs = CommitLogs.of(CHANGES, BEFORE, AFTER, T1)
    assert [log.name for log, _ in logs.present] == [f".record-index-eu-0001-0_{T1}.log.1_1-0-1"]
    assert [log.name for log, _ in logs.begun] == [
        f".record-index-us-0000-0_{T1}.log.1_0-0-0",
        f".record-index-us-0001-0_{T1}.log.1_0-0-0",
        f".record-index-us-0001-0_{T1}.log.1_1-0-1",
    ]
    nothing_new = CommitLogs.of(CHANGES, AFTER, AFTER, T1)
    assert (len(nothing_new.present), len(nothing_new.begun)) == (2, 0)


def test_they_come_and_go_as_a_whole_and_each_step_can_be_repeated() -> None:
    storage = InMemoryStorage()
    by, begun = Unfenced(storage), CommitLogs.of(CHANGES, BEFORE, AFTER, T1).begun
    for log, _ in begun[:2]:
        storage.create(log.path, dict(begun)[log])
    for _ in range(2):
        by.publish(prepare_begun(by, begun))
        assert storage.names(RECORD_INDEX_FOLDER) == sorted(log.name for log, _ in begun)
    storage.delete(begun[0][0].path)
    for _ in range(2):
        take_back_begun(by, [log for log, _ in begun])
        assert not list(storage.names(RECORD_INDEX_FOLDER))


def test_a_partition_that_another_writer_began_meanwhile_is_refused() -> None:
    check_not_begun(BEFORE, AFTER, BEFORE)
    check_not_begun(BEFORE, AFTER, BEFORE.begun(["asia"], 3))
    with pytest.raises(TimelineConflictError, match="'us' with 3 file groups, where 2 were"):
        check_not_begun(BEFORE, AFTER, BEFORE.begun(["us"], 3))


@pytest.mark.parametrize(
    ("names", "hidden"),
    [
        ([f".record-index-eu-0000-0_{T1}.log.1_0-0-0", f".record-index-eu-0000-0_{T2}.log.1_0-0-1"], True),
        # The first file is committed, a later one is not.
        ([f".record-index-eu-0000-0_{T2}.log.1_0-0-0", f".record-index-eu-0000-0_{T3}.log.1_0-0-1"], False),
        # A write that is under way, or was given up before anybody wrote there.
        ([f".record-index-eu-0000-0_{T1}.log.1_0-0-0", f".record-index-eu-0000-0_{T1}.log.1_0-0-1"], False),
        (
            [
                f".record-index-eu-0000-0_{T1}.log.1_0-0-0",
                f".record-index-eu-0000-0_{T2}.log.1_0-0-1",
                f"record-index-eu-0000-0_0-1-1_{T2}001.hfile",
            ],
            False,
        ),
    ],
)
def test_a_group_that_begins_with_a_file_that_does_not_count_is_hidden(
    names: list[str], hidden: bool
) -> None:
    found = hidden_groups([*names, ".hoodie_partition_metadata"], lambda instant: instant == T2)
    assert found == ({"record-index-eu-0000-0": names[0]} if hidden else {})


def test_left_groups_are_those_in_which_no_file_is_of_an_instant_that_a_timeline_has() -> None:
    """Of `us` the commit was undone, of `asia` another one came first or later, `eu` is compacted."""
    left = [f".record-index-us-0000-0_{T1}.log.1_0-0-0", f".record-index-us-0000-0_{T3}.log.1_0-0-0"]
    others = [
        f".record-index-asia-0000-0_{T1}.log.1_0-0-0",
        f".record-index-asia-0000-0_{T2}.log.1_0-7-7",
        f".record-index-eu-0000-0_{T3}.log.1_0-7-7",
        f"record-index-eu-0000-0_0-0-0_{T1}.hfile",
    ]
    found = left_groups([*others, *left, ".hoodie_partition_metadata"], lambda instant: instant == T2)
    assert [log.name for log in found] == left
    assert {log.path for log in found} == {f"{RECORD_INDEX_FOLDER}/{name}" for name in left}
    assert left_groups([*others, *left], lambda _: True) == []
