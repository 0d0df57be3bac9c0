"""Files of which Hudi's column stats do not hold for all rows, as the files themselves tell.

* A Parquet footer has no bounds of a column chunk, or a NaN for one, where a value is NaN, and none where a
  bound is a text of some thousand characters. Hudi makes the stats of base files from footers, and takes such
  a chunk for one of 0.0 to 0.0 (apache/hudi#18754), or of nulls alone (apache/hudi#18755).
* A log file of partial updates (MERGE INTO of some columns) has rows without the other columns. Hudi makes
  stats of them that say that these are null, though readers see the values of before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.log_blocks import columns_of_block
from tidemark.hudi_format.log_file import scan_heads
from tidemark.hudi_format.log_file.blocks import HeaderKey
from tidemark.hudi_format.parquet_files import open_parquet
from tidemark.hudi_format.storage.base import Storage


def columns_without_bounds(storage: Storage, path: str, columns: Collection[str]) -> set[str]:
    """Those of the columns that have values in a row group of the base file for which its footer has no
    bounds. The footer alone is read; none are named where the file is gone. Raises CorruptFileError.
    """
    try:
        with storage.open_input(path) as source:
            footer = open_parquet(source, path).metadata
    except FileMissingError:
        return set()
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return {chunk.path_in_schema for chunk in chunks if chunk.path_in_schema in columns and unranged(chunk)}


def unranged(chunk: Any) -> bool:
    """Whether a column chunk has values, and its statistics no bounds that Hudi takes."""
    found = chunk.statistics
    if found is not None and found.has_min_max:
        return any(bound != bound for bound in (found.min, found.max))
    nulls = found.null_count if found is not None and found.has_null_count else 0
    return bool(chunk.num_values > nulls)


def columns_not_updated(storage: Storage, path: str, columns: Collection[str]) -> set[str]:
    """Those of the columns that a block of partial updates in the log file lacks; none where the file is
    gone. The blocks' headers alone are read. Raises CorruptFileError.
    """
    try:
        with storage.open_input(path) as source:
            found = [block.headers for block in scan_heads(source, path)]
    except FileMissingError:
        return set()
    partial = [columns_of_block(headers, path) for headers in found if HeaderKey.IS_PARTIAL in headers]
    return {column for held in partial for column in columns if column not in held}
