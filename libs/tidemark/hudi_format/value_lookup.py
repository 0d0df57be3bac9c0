"""Which rows have a value in an indexed column, and where they are: a page of answers from a table's
files.

The record keys come from the secondary index of the column, their places from the record index, both as of
one snapshot. The next page is of a newer one: rows that were written in between are on it if their keys sort
behind the page before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError, HudiFormatError, TimelineConflictError
from tidemark.hudi_format.indexed_values import index_text
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    group_of,
    prefixes,
    split_composite_keys,
)
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, secondary_layouts
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.secondary_pages import EntryPage, entry_page
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema

ROWS_DEFAULT: Final = 1_000
ROWS_MAX: Final = 10_000
"""So many rows a page has at most."""
_LOADS_MAX: Final = 5


class NotIndexedError(HudiFormatError):
    """No secondary index is of the column; the text names the columns that have one."""


class PageTokenError(HudiFormatError):
    """A page token that no page of this value had."""


@dataclass(frozen=True)
class ValuePage:
    """`places[i]` is where the row of `keys[i]` is, None where the record index does not know the key: such
    an entry is one too many. `as_of`: completion time of the newest commit that was seen, None before the
    first. `next_token`: for the page after this one, "" on the last. A page may be shorter than asked for.
    """

    index: str
    column: str
    as_of: str | None
    keys: Sequence[str]
    places: Sequence[RecordLocation | None]
    next_token: str


def look_up_value(storage: Storage, column: str, value: str | None, token: str, limit: int) -> ValuePage:
    """A page of the rows whose column has the value: at most `limit`, in the order of their keys' escaped
    bytes. `value` as `indexed_values` says, None for null. `token`: "" for the first page.

    Raises NotIndexedError, ValueFormError, PageTokenError, TimelineConflictError (try again),
    UnsupportedTableError, CorruptFileError.
    """
    for _ in range(_LOADS_MAX):
        snapshot = MetadataTableSnapshot.load(storage)
        layout, prefix = _asked(snapshot, column, value)
        after = _entry(token, prefix)
        try:
            return _page(snapshot, layout, prefix, after, limit)
        except FileMissingError:
            continue
    raise TimelineConflictError(
        f"{storage.base_uri}: files of {layout.name} were cleaned away while they were read, {_LOADS_MAX} "
        "times: try again"
    )


def _asked(snapshot: MetadataTableSnapshot, column: str, value: str | None) -> tuple[SecondaryLayout, str]:
    """The index of the column, and what the value's entries begin with."""
    storage = snapshot.storage
    config = read_table_config(storage)
    by_column = {layout.column: layout for layout in secondary_layouts(storage, config, snapshot.validity)}
    layout = by_column.get(column)
    if layout is None:
        raise NotIndexedError(f"the column {column} has no secondary index; {_named(by_column)}")
    schema = table_schema(storage, config, snapshot.data_timeline)
    text = value
    if schema is not None:
        layout.check_schema(schema)
        text = None if value is None else index_text(column, schema.field(column).type, value)
    return layout, prefixes(pa.array([text], pa.string()))[0].as_py()


def _named(by_column: Mapping[str, SecondaryLayout]) -> str:
    if not by_column:
        return "the table has none"
    named = [
        f"{layout.column} ({layout.name.removeprefix(SECONDARY_PREFIX)})" for layout in by_column.values()
    ]
    return f"these have one: {', '.join(named)}"


def _page(
    snapshot: MetadataTableSnapshot, layout: SecondaryLayout, prefix: str, after: str, limit: int
) -> ValuePage:
    partition = SecondaryIndexPartition(layout.name)
    [group] = group_of(pa.array([prefix], pa.string()), layout.groups).tolist()
    file_id = partition.file_id(ShardId(group))
    page = EntryPage(pa.array([], pa.string()), None)
    for file_slice in snapshot.slices.get(partition.name, []):
        if file_slice.file_id == file_id:
            folder = join_path(METADATA_TABLE_PATH, partition.name)
            is_valid = snapshot.validity.is_valid
            page = entry_page(snapshot.storage, folder, file_slice, is_valid, prefix, after, limit)
    _, keys = split_composite_keys(page.keys, layout.name)
    return ValuePage(
        layout.name.removeprefix(SECONDARY_PREFIX),
        layout.column,
        snapshot.data_timeline.newest_completion(),
        keys.to_pylist(),
        _places(snapshot, keys),
        "" if page.last is None else base64.urlsafe_b64encode(page.last.encode()).decode(),
    )


def _places(snapshot: MetadataTableSnapshot, keys: pa.StringArray) -> list[RecordLocation | None]:
    """Where each key's row is, by the record index, of which one shard at a time is open."""
    places: list[RecordLocation | None] = [None] * len(keys)
    if not len(keys):
        return places
    shards = record_index_shard(keys, snapshot.num_shards)
    for shard in np.unique(shards).tolist():
        members = np.flatnonzero(shards == shard)
        found = snapshot.shard(ShardId(shard)).lookup(keys.take(pa.array(members)))
        for member, place in zip(members.tolist(), found.location_ids.tolist(), strict=True):
            places[member] = found.locations[place] if place >= 0 else None
    return places


def _entry(token: str, prefix: str) -> str:
    """The entry behind which the page begins."""
    if not token:
        return ""
    try:
        entry = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        entry = ""
    if not entry.startswith(prefix):
        raise PageTokenError("the page token is not from an answer to this question")
    return entry
