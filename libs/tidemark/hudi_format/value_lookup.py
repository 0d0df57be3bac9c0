"""Which rows have some values in an indexed column, and where they are: a page of answers from a table's
files.

The record keys come from the secondary index of the column, their places from the record index, both as of
one snapshot. The next page is of a newer one: rows that were written in between are on it if they come behind
the page before.

Rows come in the order of the index's file groups, in each in the order of its entries' bytes, which begin
with the value. So a page reads the file groups that it needs, and the rows of one value, which are all in one
file group, follow each other. A page token says behind which entry the next page begins, or with which value,
and how many file groups there were: in an index that was made anew with another number of them the rows come
in another order, and the question has to be asked from its begin.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import (
    CorruptFileError,
    FileMissingError,
    HudiFormatError,
    TimelineConflictError,
)
from tidemark.hudi_format.indexed_values import index_text
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    group_of,
    prefixes,
    prefixes_of,
    split_composite_keys,
)
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, layouts_as_of
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.secondary_pages import BYTES_MAX, entry_page
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema

ROWS_DEFAULT: Final = 1_000
ROWS_MAX: Final = 10_000
"""So many rows a page has at most."""
VALUES_MAX: Final = 10_000
VALUES_BYTES_MAX: Final = 3 << 20
"""So much one question over gRPC has at most."""
_VALUES_OF_A_PAGE: Final = 2_000
"""So many values are looked for in one page, also if no row has them: a page ends in bounded time."""
_LOADS_MAX: Final = 5


class NotIndexedError(HudiFormatError):
    """No secondary index is of the column; the text names the columns that have one."""


class PageTokenError(HudiFormatError):
    """A page token that no page of this value had."""


@dataclass(frozen=True)
class ValuePage:
    """The row of `keys[i]` has the value `values[i]`, a position in the values asked for (the first of equal
    ones), and is at `places[i]`: None where the record index does not know the key, and then the entry is one
    too many. `as_of`: completion time of the newest commit that was seen, None before the first.
    `next_token`: for the page after this one, "" on the last. A page may be shorter than asked for, or empty.
    """

    index: str
    column: str
    as_of: str | None
    keys: Sequence[str]
    values: Sequence[int]
    places: Sequence[RecordLocation | None]
    next_token: str


@dataclass(frozen=True)
class _Question:
    """`texts[i]`: of the value `i` in the index, null for null. `prefixes[i]`: what its entries begin with.
    `groups[i]`: their file group.
    """

    layout: SecondaryLayout
    texts: pa.StringArray
    prefixes: pa.StringArray
    groups: npt.NDArray[np.int32]

    def from_entry(self, after: str) -> list[tuple[int, str]]:
        """(file group, prefix) of each value, once and in order, from the one that the entry is of on ("":
        from the first one).
        """
        every = sorted(set(zip(self.groups.tolist(), self.prefixes.to_pylist(), strict=True)))
        if not after:
            return every
        [prefix] = prefixes_of(pa.array([after], pa.string())).to_pylist()
        [group] = group_of(pa.array([prefix], pa.string()), self.layout.groups).tolist()
        return [value for value in every if value >= (group, prefix)]


def look_up_values(
    storage: Storage, column: str, values: Sequence[str | None], token: str, limit: int
) -> ValuePage:
    """A page of the rows whose column has one of the values: at most `limit`. A value is written as
    `indexed_values` says, None for null. `token`: "" for the first page.

    Raises NotIndexedError, ValueFormError, PageTokenError, TimelineConflictError (try again),
    UnsupportedTableError, CorruptFileError.
    """
    for _ in range(_LOADS_MAX):
        snapshot = MetadataTableSnapshot.load(storage)
        try:
            asked = _asked(snapshot, column, values)
            after = _entry(token, asked)
            return _page(snapshot, asked, after, limit)
        except FileMissingError:
            continue
    raise TimelineConflictError(
        f"{storage.base_uri}: files of the index of {column} were cleaned away while they were read, "
        f"{_LOADS_MAX} times: try again"
    )


def _asked(snapshot: MetadataTableSnapshot, column: str, values: Sequence[str | None]) -> _Question:
    storage = snapshot.storage
    config = read_table_config(storage)
    by_column = {layout.column: layout for layout in layouts_as_of(snapshot, config)}
    layout = by_column.get(column)
    if layout is None:
        raise NotIndexedError(f"the column {column} has no secondary index; {_named(by_column)}")
    schema = table_schema(storage, config, snapshot.data_timeline)
    texts = values
    if schema is not None:
        layout.check_schema(schema)
        kind = schema.field(column).type
        texts = [None if value is None else index_text(column, kind, value) for value in values]
    of_values = pa.array(texts, pa.string())
    begins = prefixes(of_values)
    return _Question(layout, of_values, begins, group_of(begins, layout.groups))


def _named(by_column: Mapping[str, SecondaryLayout]) -> str:
    if not by_column:
        return "the table has none"
    named = [
        f"{layout.column} ({layout.name.removeprefix(SECONDARY_PREFIX)})" for layout in by_column.values()
    ]
    return f"these have one: {', '.join(named)}"


def _page(snapshot: MetadataTableSnapshot, asked: _Question, after: str, limit: int) -> ValuePage:
    layout = asked.layout
    entries, last = _entries(snapshot, asked, after, limit)
    texts, keys = split_composite_keys(entries, layout.name)
    values = pc.index_in(texts, value_set=asked.texts)
    return ValuePage(
        layout.name.removeprefix(SECONDARY_PREFIX),
        layout.column,
        snapshot.data_timeline.newest_completion(),
        keys.to_pylist(),
        values.to_pylist(),
        _places(snapshot, keys),
        "" if last is None else _token(last, layout),
    )


def _entries(
    snapshot: MetadataTableSnapshot, asked: _Question, after: str, limit: int
) -> tuple[pa.StringArray, str | None]:
    """The composite keys of a page, and behind which one the next page begins; None: there is none."""
    partition = SecondaryIndexPartition(asked.layout.name)
    folder = join_path(METADATA_TABLE_PATH, partition.name)
    slices = {file_slice.file_id: file_slice for file_slice in snapshot.slices.get(partition.name, [])}
    is_valid = snapshot.validity.is_valid
    values = asked.from_entry(after)
    left = [prefix for _, prefix in values[_VALUES_OF_A_PAGE:]]
    found: list[pa.StringArray] = [pa.array([], pa.string())]
    count = size = 0
    for group, of_group in groupby(values[:_VALUES_OF_A_PAGE], key=itemgetter(0)):
        wanted = [prefix for _, prefix in of_group]
        if count >= limit or size >= BYTES_MAX:
            # A prefix is before the entries of its value, and behind those of all values before.
            return pa.concat_arrays(found), wanted[0]
        name = partition.file_id(ShardId(group))
        if name not in slices:
            raise FileMissingError(f"{folder}: the file group {name} is not there (any more)")
        room = limit - count, BYTES_MAX - size
        page = entry_page(snapshot.storage, folder, slices[name], is_valid, wanted, after, *room)
        after = ""
        found.append(page.keys)
        count, size = count + len(page.keys), size + page.keys.nbytes
        if page.last is not None:
            return pa.concat_arrays(found), page.last
    return pa.concat_arrays(found), left[0] if left else None


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


def _token(last: str, layout: SecondaryLayout) -> str:
    return base64.urlsafe_b64encode(f"{layout.groups} {last}".encode()).decode()


def _entry(token: str, asked: _Question) -> str:
    """The entry behind which the page begins."""
    if not token:
        return ""
    try:
        groups, _, entry = base64.b64decode(token, altchars=b"-_", validate=True).decode().partition(" ")
        [prefix] = prefixes_of(pa.array([entry], pa.string())).to_pylist()
    except (binascii.Error, ValueError, CorruptFileError):
        groups = prefix = ""
    if prefix not in asked.prefixes.to_pylist():
        raise PageTokenError("the page token is not from an answer to this question")
    # The rows of one value are in one file group, however many there are.
    if pc.count_distinct(asked.prefixes).as_py() > 1 and groups != str(asked.layout.groups):
        raise PageTokenError(
            f"the index of {asked.layout.column} was made anew since the answer that named this page token, "
            "with another number of file groups: ask from the first page"
        )
    return entry
