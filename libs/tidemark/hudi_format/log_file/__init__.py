"""Log files of MERGE_ON_READ tables and of the metadata table: their blocks, and the delete lists in them."""

from tidemark.hudi_format.log_file.blocks import (
    BlockType,
    HeaderKey,
    LogBlock,
    frame_block,
    read_block_at,
    read_blocks,
    rollback_block,
    scan_heads,
)
from tidemark.hudi_format.log_file.deletes import (
    DeleteRecords,
    DeleteTarget,
    OrderingType,
    decode_deletes,
    empty_delete_content,
    encode_deletes,
)

__all__ = [
    "BlockType",
    "DeleteRecords",
    "DeleteTarget",
    "HeaderKey",
    "LogBlock",
    "OrderingType",
    "decode_deletes",
    "empty_delete_content",
    "encode_deletes",
    "frame_block",
    "read_block_at",
    "read_blocks",
    "rollback_block",
    "scan_heads",
]
