"""Makes partition paths from partition values: Hudi's escaping and style, and what must never become a
folder.

Invariant: a path that is returned without an error stays inside the table's folder, names none of Hudi's own
folders, and can be read by Hudi on Spark. The work is done once per distinct value, not per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
SEGMENT_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 1024
# The characters that Hudi escapes. Hudi 1.2.0 was seen to leave space, '+', '~', '}' and non-ASCII unescaped.
_ESCAPED: Final = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_ESCAPE_SEQUENCE: Final = re.compile("%[0-9a-fA-F]{2}")
# The names of base and log files. Such files are in a partition's folder, where a partition of the same name
# would have to be a folder.
_DATA_FILE: Final = re.compile(r"\.(parquet|orc|hfile|lance)(\.crc)?$|^\..*\.log\.", re.IGNORECASE)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escape_partition_value(value: str) -> str:
    """`value` escaped as with `hoodie.datasource.write.partitionpath.urlencode`: `%XX`, upper-case hex."""
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", value)


def path_error(path: str) -> str | None:
    """Why `path` must not become a partition path; None when it may. '' is the path of a table without
    partitions.
    """
    if not path:
        return None
    if _CONTROL.search(path):
        return "a partition value holds a control character"
    if "\\" in path:
        return "a partition value holds a backslash"
    if path.startswith("/"):
        return "the partition path is absolute"
    segments = path.split("/")
    if ":" in path:
        return "a partition value holds ':', which Hadoop takes for a URI scheme; switch URL encoding on"
    for segment in segments:
        if segment in ("", ".", ".."):
            return f"the partition path has an empty, '.' or '..' part: {path[:80]!r}"
        if segment.startswith(".hoodie"):
            return "a partition value starts with '.hoodie', which is Hudi's own folder"
        if _DATA_FILE.search(segment):
            return f"a partition value looks like the name of a data file: {segment[:80]!r}"
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"a part of the partition path is longer than {SEGMENT_BYTES_MAX} bytes"
    if len(path.encode()) > PATH_BYTES_MAX:
        return f"the partition path is longer than {PATH_BYTES_MAX} bytes"
    return None


def value_error(value: str, several_fields: bool) -> str | None:
    """Why Hudi 1.2.0 on Spark would read another value from the path than this unescaped one; None when it
    reads the same.
    """
    if _ESCAPE_SEQUENCE.search(value):
        return "a partition value holds '%' and two hex digits, which readers decode; switch URL encoding on"
    if "=" in value:
        return "a partition value holds '=', which readers take for a Hive-style name; switch URL encoding on"
    if "/" in value and several_fields:
        return "a value of several partition fields holds '/'; switch URL encoding on"
    return None


def partition_segments(
    values: pa.Array, field_name: str, *, hive_style: bool, url_encode: bool, several_fields: bool
) -> tuple[pa.Array, pa.Array]:
    """The values (text) of one partition field as path segments, and per row why it has none.

    Null and '' become Hive's default partition, `__HIVE_DEFAULT_PARTITION__`.
    """
    prefix = f"{field_name}=" if hive_style else ""

    def segment(value: str) -> str:
        if not value:
            return prefix + DEFAULT_PARTITION
        return prefix + (escape_partition_value(value) if url_encode else value)

    def error(value: str) -> str | None:
        return None if url_encode else value_error(value, several_fields)

    filled = pc.fill_null(values, "")
    return map_distinct(filled, segment), map_distinct(filled, error)


def map_distinct(values: pa.Array, function: Callable[[str], str | None]) -> pa.Array:
    """`function` of each string, called once per distinct one. `values` has no nulls.

    ["a", "b", "a"] is encoded as dictionary ["a", "b"] with indices [0, 1, 0]: two calls for three rows.
    """
    encoded = values.dictionary_encode()
    mapped = pa.array([function(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return mapped.take(encoded.indices)


def path_errors(paths: pa.Array) -> pa.Array:
    """Per row why the path is refused; null where it is allowed."""
    return map_distinct(paths, path_error)


def join_segments(columns: list[pa.Array]) -> pa.Array:
    """The path segments of several fields, joined row by row with '/'."""
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "/")


def blank_where(values: pa.Array, errors: pa.Array) -> pa.Array:
    """`values`, with null in each row that has an error, so that nobody uses a refused value by mistake."""
    if errors.null_count == len(errors):
        return values
    return pc.if_else(pa.array(np.asarray(pc.is_valid(errors))), pa.scalar(None, values.type), values)
