"""Which log blocks of a slice count and in which order: rollbacks and log compaction."""

from __future__ import annotations

import pytest

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.log_file import BlockType, HeaderKey, LogBlock
from tidemark.hudi_format.log_file.blocks import COMMAND_ROLLBACK
from tidemark.hudi_format.metadata_table.log_records import SourcedBlock, merge_order

_NO_CONTENT = memoryview(b"")


def block(instant: str, folds: str = "", kind: BlockType = BlockType.HFILE_DATA) -> SourcedBlock:
    headers = {HeaderKey.INSTANT_TIME: instant}
    if folds:
        headers[HeaderKey.COMPACTED_BLOCK_TIMES] = folds
    return SourcedBlock(LogBlock(kind, headers, _NO_CONTENT, 0), f"log of {instant}")


def rollback(instant: str, target: str) -> SourcedBlock:
    headers = {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: COMMAND_ROLLBACK,
    }
    return SourcedBlock(LogBlock(BlockType.COMMAND, headers, _NO_CONTENT, 0), f"log of {instant}")


def order(blocks: list[SourcedBlock], invalid: str = "") -> list[str]:
    found = merge_order(blocks, lambda instant: instant not in invalid.split())
    return [each.block.instant_time for each in found]


def test_blocks_of_instants_that_do_not_count_are_left_out() -> None:
    assert order([block("1"), block("2"), block("3")], invalid="2") == ["1", "3"]


def test_upserts_stay_before_deletes_of_one_instant() -> None:
    blocks = [block("1"), block("1", kind=BlockType.DELETE), block("2")]
    found = merge_order(blocks, lambda _: True)
    assert [each.block.block_type for each in found] == [
        BlockType.HFILE_DATA,
        BlockType.DELETE,
        BlockType.HFILE_DATA,
    ]


def test_a_rollback_takes_the_blocks_of_its_target_back() -> None:
    assert order([block("1"), block("2"), rollback("3", "2"), block("4")]) == ["1", "4"]


def test_a_rollback_that_does_not_count_takes_nothing_back() -> None:
    assert order([block("1"), block("2"), rollback("3", "2")], invalid="3") == ["1", "2"]


def test_a_folded_block_stands_where_the_newest_of_its_originals_stood() -> None:
    # 5 folds 1 and 2, was made after 3 completed, and must not override 3.
    assert order([block("1"), block("2"), block("3"), block("5", folds="1,2")]) == ["5", "3"]


def test_a_folding_of_foldings_is_resolved() -> None:
    blocks = [
        block("1"),
        block("2"),
        block("3"),
        block("4", folds="1,2"),
        block("6", folds="3,4"),
        block("7"),
    ]
    assert order(blocks) == ["6", "7"]


def test_a_folded_block_without_an_original_in_the_slice_is_not_used() -> None:
    """The compaction that began the slice has merged the originals: what 3 deleted must not come back."""
    assert order([block("3"), block("5", folds="1,2")]) == ["3"]
    assert order([block("3"), block("5", folds="1,2")], invalid="2") == ["3"]


def test_a_folded_block_with_something_that_does_not_count_is_not_used() -> None:
    assert order([block("1"), block("2"), block("5", folds="1,2")], invalid="2") == ["1"]


def test_originals_that_are_gone_under_a_folding_that_does_not_count_mean_reload() -> None:
    with pytest.raises(FileMissingError):
        order([block("2"), block("5", folds="1,2")], invalid="2")


def test_a_folded_upsert_and_delete_block_both_count() -> None:
    blocks = [block("1"), block("5", folds="1"), block("5", folds="1", kind=BlockType.DELETE)]
    found = merge_order(blocks, lambda _: True)
    assert [each.block.block_type for each in found] == [BlockType.HFILE_DATA, BlockType.DELETE]


def test_a_block_of_table_data_does_not_belong_in_the_metadata_table() -> None:
    with pytest.raises(CorruptFileError, match="PARQUET_DATA"):
        order([block("1", kind=BlockType.PARQUET_DATA)])
