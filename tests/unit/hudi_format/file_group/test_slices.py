"""File names, and which slice a file belongs to: by completion time, never by the instant in the name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.file_group.slicing import all_slices, build_slices
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline


def t(n: int) -> str:
    return f"20260101000000{n:03d}"


def timeline(*completed: tuple[int, int], pending: tuple[int, ...] = ()) -> Timeline:
    instants = [Instant(t(n), Action.DELTA_COMMIT, State.COMPLETED, t(c)) for n, c in completed]
    instants += [Instant(t(n), Action.DELTA_COMMIT, State.INFLIGHT) for n in pending]
    return Timeline(tuple(sorted(instants, key=lambda each: each.requested)))


def base(n: int, token: str = "0-0-0") -> str:
    return f"f-0_{token}_{t(n)}.parquet"


def log(n: int, version: int = 1, token: str = "0-0-0") -> str:
    return f".f-0_{t(n)}.log.{version}_{token}"


def slices_of(
    files: Mapping[str, list[str]],
    line: Timeline,
    as_of: str | None = None,
    pending: Mapping[FileGroupId, str] = MappingProxyType({}),
    replaced: Mapping[FileGroupId, str] = MappingProxyType({}),
) -> list[FileSlice]:
    return build_slices(files, line, pending_compactions=pending, replaced=replaced, as_of=as_of)


def only_slice(names: list[str], line: Timeline, **more: object) -> FileSlice:
    (found,) = slices_of({"p": names}, line, **more)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "f3a-0_1-20-300_20260101000000001.parquet",
        "record-index-0003-0_0-0-0_00000000000000001.hfile",
        ".record-index-0003-0_00000000000000001.log.1_0-0-0",
        ".f-0_20260101000000001.log.12",
        ".f-0_20260101000000001.log.1_0-1-2.cdc",
        ".f-0_20260101000000001.archive.1_0-1-2",
    ],
)
def test_names_are_printed_as_they_were_parsed(name: str) -> None:
    assert str(parse_data_file(name)) == name


def test_the_parts_of_a_log_file_name() -> None:
    parsed = LogFileName.parse(".abc-0_20260101000000001.log.2_3-4-5")
    assert parsed == LogFileName("abc-0", "20260101000000001", 2, "3-4-5")
    assert BaseFileName.parse("abc-0_3-4-5_7.parquet") == BaseFileName("abc-0", "3-4-5", "7", "parquet")


@pytest.mark.parametrize(
    "name", [".hoodie_partition_metadata", "x.parquet", ".x.parquet.crc", "a_b_c.parquet", ".a.b_1.log.1", ""]
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert parse_data_file(name) is None


@pytest.mark.parametrize("file_id", ["", "a.b", "a_b", "a/b"])
def test_a_file_id_that_could_not_be_parsed_again_is_refused(file_id: str) -> None:
    with pytest.raises(HudiFormatError):
        str(LogFileName(file_id, t(1), 1, "0-0-0"))
    with pytest.raises(HudiFormatError):
        str(BaseFileName(file_id, "0-0-0", t(1), "parquet"))


def test_a_log_belongs_to_the_newest_base_at_its_completion() -> None:
    # 3 is requested before the compaction 4 and completes after it: it belongs to the new slice.
    line = timeline((1, 2), (3, 7), (4, 6), (8, 9))
    slices = all_slices({"p": [base(1), log(3), base(4), log(8)]}, line, pending_compactions={})[("p", "f-0")]
    assert slices == [
        FileSlice("p", "f-0", base(1), t(1), ()),
        FileSlice("p", "f-0", base(4), t(4), (log(3), log(8))),
    ]
    assert only_slice([base(1), log(3), base(4), log(8)], line) == slices[1]


def test_a_log_that_completed_before_the_compaction_stays_in_the_old_slice() -> None:
    line = timeline((1, 2), (3, 4), (5, 6))
    slices = all_slices({"p": [base(1), log(3), base(5)]}, line, pending_compactions={})[("p", "f-0")]
    assert slices == [FileSlice("p", "f-0", base(1), t(1), (log(3),)), FileSlice("p", "f-0", base(5), t(5))]
    assert only_slice([base(1), log(3), base(5)], line).log_files == ()


def test_files_of_pending_and_of_unknown_instants_are_in_no_slice() -> None:
    line = timeline((1, 2), (4, 5), pending=(3, 6))
    names = [base(1), log(3), log(4), base(6), log(9)]
    assert only_slice(names, line) == FileSlice("p", "f-0", base(1), t(1), (log(4),))
    assert slices_of({"p": [base(6)]}, line) == []


def test_a_base_file_that_a_writer_left_behind_takes_no_log_file_with_it() -> None:
    """A Spark writer that lost a conflict leaves rewritten base files under a pending instant until somebody
    rolls it back. Hudi's readers without the metadata table then miss the log files that complete after it.
    """
    for left_behind in ((3,), ()):  # its instant is pending still, or is on no timeline at all
        line = timeline((1, 2), (4, 5), pending=left_behind)
        names = [base(1), base(3), log(4)]
        assert only_slice(names, line) == FileSlice("p", "f-0", base(1), t(1), (log(4),))


def test_a_snapshot_reads_the_slice_before_a_pending_compaction_with_the_logs_after_it() -> None:
    line = timeline((1, 2), (3, 4), (6, 7), pending=(5,))
    names = [base(1), log(3), log(6)]
    pending = {("p", "f-0"): t(5)}
    assert [
        each.log_files for each in all_slices({"p": names}, line, pending_compactions=pending)[("p", "f-0")]
    ] == [
        (log(3),),
        (log(6),),
    ]
    assert only_slice(names, line, pending=pending) == FileSlice("p", "f-0", base(1), t(1), (log(3), log(6)))


def test_as_of_a_completion_time_later_files_are_not_there() -> None:
    line = timeline((1, 2), (3, 4), (5, 6), (7, 8))
    names = [base(1), log(3), base(5), log(7)]
    assert slices_of({"p": names}, line, t(1)) == []
    assert only_slice(names, line, as_of=t(2)) == FileSlice("p", "f-0", base(1), t(1))
    assert only_slice(names, line, as_of=t(4)).log_files == (log(3),)
    assert only_slice(names, line, as_of=t(6)) == FileSlice("p", "f-0", base(5), t(5))
    assert only_slice(names, line, as_of=t(8)).log_files == (log(7),)


def test_as_of_before_a_compaction_completed_its_later_logs_are_read_over_the_old_base() -> None:
    line = timeline((1, 2), (3, 9), (4, 5))  # compaction 3 ended at 9; log 4 is of its slice
    assert only_slice([base(1), base(3), log(4)], line, as_of=t(6)) == FileSlice(
        "p", "f-0", base(1), t(1), (log(4),)
    )


def test_a_group_without_base_file_begins_with_its_first_log() -> None:
    line = timeline((1, 2), (3, 4))
    assert only_slice([log(3), log(1)], line) == FileSlice("p", "f-0", None, t(1), (log(1), log(3)))


def test_logs_are_ordered_by_instant_version_and_token_as_text() -> None:
    line = timeline((1, 2), (3, 4))
    names = [log(3), log(1, 10), log(1, 2, "9-0-0"), log(1, 2, "10-0-0")]
    assert only_slice(names, line).log_files == (log(1, 2, "10-0-0"), log(1, 2, "9-0-0"), log(1, 10), log(3))


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_base_files_of_one_instant_the_last_write_token_counts(turned: bool) -> None:
    """Attempts of one task left both; in which order a folder lists them says nothing."""
    names = [base(1, "0-1-1"), base(1, "0-1-0")]
    found = only_slice(names[::-1] if turned else names, timeline((1, 2)))
    assert found.base_file == base(1, "0-1-1")


def test_files_of_archived_instants_count() -> None:
    line = timeline((5, 6))
    assert only_slice([base(1), log(3), log(5)], line).log_files == (log(3), log(5))


def test_change_logs_and_archived_logs_are_no_part_of_a_slice() -> None:
    line = timeline((1, 2))
    names = [base(1), log(1) + ".cdc", log(1).replace(".log.", ".archive.")]
    assert only_slice(names, line).log_files == ()


def test_replaced_groups_are_gone_after_the_replacement_completed() -> None:
    line = timeline((1, 2), (3, 4))
    replaced = {("p", "f-0"): t(4)}
    assert slices_of({"p": [base(1)]}, line, replaced=replaced) == []
    assert only_slice([base(1)], line, as_of=t(3), replaced=replaced).base_file == base(1)


def test_groups_are_ordered_by_partition_and_file_id() -> None:
    line = timeline((1, 2))
    names = {"b": [f"{each}_0-0-0_{t(1)}.parquet" for each in ("z", "a")], "a": [base(1)]}
    found = slices_of(names, line)
    assert [(each.partition_path, each.file_id) for each in found] == [("a", "f-0"), ("b", "a"), ("b", "z")]
    assert found[0].paths() == [f"a/{base(1)}"]
