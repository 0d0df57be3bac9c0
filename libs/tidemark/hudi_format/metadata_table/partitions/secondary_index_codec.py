r"""Keys and values of secondary index entries, version 2 (METADATA_TABLE.md, section 10.2), as columns.

An entry says that the row of a record key has a value in the indexed column:

    key     esc(text of the value) + "$" + esc(record key), called a composite key
    group   of a key: Java's hash of esc(text) + "$", its prefix, modulo the number of groups: all entries of
            one value are in one group
    value   the same bytes for every entry: the composite key says it all

esc puts a backslash before each backslash, dollar and NUL. A null value is one NUL without a backslash.
Example: city "a$b" of the row k1 is `a\$b$k1`, null of the row k3 is NUL + `$k3`.

Texts are those that Hudi's readers look a filter's literal up by: a date is a number of days, a timestamp one
of microseconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.columnar import avro_string, concat_rows, zigzag_varint
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.hfile.layout import KEY_BYTES_MAX
from tidemark.hudi_format.metadata_table.record_schema import (
    META_FIELD_COUNT,
    RECORD_TYPE_SECONDARY_INDEX,
    decode_record,
    has_own_layout,
)
from tidemark.hudi_format.record_index_hash import record_index_shard

INDEXED_TYPES: Final[dict[pa.DataType, pa.DataType]] = {
    pa.string(): pa.string(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.date32(): pa.int32(),
    pa.timestamp("us", "UTC"): pa.int64(),
}
"""Types of columns that can be indexed -> the type whose decimal text is the text of a value."""
_NULL: Final = "\x00"
_END: Final = "$"
_SPECIAL: Final = ("\\", _END, "\x00")  # The backslash first: the others bring backslashes in.
_SPLIT: Final = r"(?s)^(?P<text>\x00|(?:[^\\$\x00]|\\.)*)\$(?P<key>(?:[^\\$\x00]|\\.)*)$"
_ESCAPED: Final = r"(?s)\\(.)"
_HEAD: Final = b"\x00" * META_FIELD_COUNT + avro_string("") + zigzag_varint(RECORD_TYPE_SECONDARY_INDEX)
ENTRY_VALUE: Final = _HEAD + b"\x00" * 4 + b"\x02\x00"
"""The value of every entry: type 7, no other payload, SecondaryIndexMetadata{isDeleted: false}."""


def value_texts(column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """The text of each value of an indexed column; null stays null.

    Raises UnsupportedTableError for a column of another type than string, int, long, date and timestamp in
    microseconds of UTC.
    """
    number = INDEXED_TYPES.get(column.type)
    if number is None:
        raise UnsupportedTableError(
            f"a column of the type {column.type} cannot have a secondary index",
            "Index a column of the type string, int, long, date or timestamp-micros",
        )
    return _one_array(column if number == column.type else column.cast(number), pa.string())


def prefixes(texts: pa.StringArray) -> pa.StringArray:
    """What the composite keys of each value begin with, and no others do: esc(text) + "$"."""
    escaped = pc.fill_null(_escaped(texts), _NULL)
    return _joined(escaped, _END.encode())


def composite_keys(texts: pa.StringArray, record_keys: pa.StringArray) -> pa.StringArray:
    """The composite key of each pair. `record_keys` has no nulls, and as many rows as `texts`."""
    return keyed(prefixes(texts), record_keys)


def keyed(value_prefixes: pa.StringArray, record_keys: pa.StringArray) -> pa.StringArray:
    """Composite keys, where the prefixes are there already."""
    return _joined(value_prefixes, _escaped(_one_array(record_keys, pa.string())))


def group_of(value_prefixes: pa.StringArray, groups: int) -> npt.NDArray[np.int32]:
    """The group of each prefix. `groups`: how many file groups the partition has on disk."""
    return record_index_shard(value_prefixes, groups)


def prefixes_of(keys: pa.StringArray, source: str = "") -> pa.StringArray:
    """The prefix of each composite key. `source` is what errors call their file. Raises CorruptFileError for
    a key that is none.
    """
    parts = _split(keys, source)
    return _joined(pc.struct_field(parts, "text"), _END.encode())


def keys_too_long(texts: pa.StringArray, record_keys: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Which pairs have a composite key of more than 32 767 bytes, which no HFile holds."""
    sizes = pc.add(pc.fill_null(pc.binary_length(texts), 1), pc.binary_length(record_keys))
    # Escaping doubles each byte at most, so that most batches need no composite keys to be asked.
    if not len(texts) or 2 * pc.max(sizes).as_py() + 1 <= KEY_BYTES_MAX:
        return np.zeros(len(texts), np.bool_)
    lengths = pc.binary_length(composite_keys(texts, record_keys))
    return np.asarray(pc.greater(lengths, KEY_BYTES_MAX).to_numpy(zero_copy_only=False), np.bool_)


def split_composite_keys(keys: pa.StringArray, source: str) -> tuple[pa.StringArray, pa.StringArray]:
    """(texts, record keys) of composite keys. `source` is what errors call their file. Raises
    CorruptFileError for a key that is none.
    """
    parts = _split(keys, source)
    escaped, record_keys = pc.struct_field(parts, "text"), pc.struct_field(parts, "key")
    texts = pc.if_else(pc.equal(escaped, _NULL), pa.scalar(None, pa.string()), _unescaped(escaped))
    return texts, _unescaped(record_keys)


def split_composite_key(key: bytes, source: str = "") -> tuple[str | None, str]:
    """(text, record key) of one composite key. Raises CorruptFileError."""
    texts, record_keys = split_composite_keys(pa.array([key], pa.binary()).cast(pa.string()), source)
    return texts[0].as_py(), record_keys[0].as_py()


def entry_values(count: int) -> pa.BinaryArray:
    """The values of so many entries."""
    return pa.repeat(pa.scalar(ENTRY_VALUE, pa.binary()), count)


def live_values(values: pa.BinaryArray, schema: str, source: str) -> npt.NDArray[np.bool_]:
    """Which of the stored values say that their entry is there, and not that it is deleted.

    `schema` is the one that they were written under ('' = ours), `source` what errors call their file. Raises
    CorruptFileError for a value of another kind.
    """
    is_own = not schema or has_own_layout(schema)
    distinct = values.dictionary_encode()
    is_live = [
        (is_own and value == ENTRY_VALUE) or _says_live(value, schema, source)
        for value in distinct.dictionary.to_pylist()
    ]
    return np.array(is_live, np.bool_)[distinct.indices.to_numpy()] if is_live else np.empty(0, np.bool_)


def _says_live(value: bytes, schema: str, source: str) -> bool:
    if not value:
        return False
    record = decode_record(value, schema, source)
    info = record.get("SecondaryIndexMetadata")
    if info is None or record.get("type") != RECORD_TYPE_SECONDARY_INDEX:
        raise CorruptFileError(f"{source}: a record of a secondary index is of type {record.get('type')}")
    return not info["isDeleted"]


def _split(keys: pa.StringArray, source: str) -> pa.StructArray:
    parts = pc.extract_regex(keys, _SPLIT)
    if parts.null_count:
        bad = keys[pc.index(pc.is_null(parts), True).as_py()].as_py()
        raise CorruptFileError(f"{source}: {bad!r} is no key of a secondary index")
    return parts


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    for character in _SPECIAL:
        texts = pc.replace_substring(texts, pattern=character, replacement=f"\\{character}")
    return texts


def _unescaped(texts: pa.StringArray) -> pa.StringArray:
    if not pc.any(pc.match_substring(texts, "\\")).as_py():
        return texts
    return pc.replace_substring_regex(texts, pattern=_ESCAPED, replacement=r"\1")


def _joined(*parts: pa.Array | bytes) -> pa.StringArray:
    return concat_rows(*parts).cast(pa.string())


def _one_array(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column.cast(kind)
