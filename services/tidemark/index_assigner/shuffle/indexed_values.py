"""Finds the rows whose value in an indexed column is too long for the secondary index of that column.

An entry of a secondary index has value and record key in one key of an HFile, which takes 32 767 bytes. A row
that is tagged is committed, and a commit has an entry for each of its rows. So such a row is refused before
it is tagged: later its whole epoch could not be written.

Example: the column `note` has the index `secondary_index_by_note`. A record of the key "k1" whose note has
40 000 bytes goes to the dead letters. Without the index the same record becomes a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.hfile.layout import KEY_BYTES_MAX
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    INDEXED_TYPES,
    keys_too_long,
    value_texts,
)
from tidemark.hudi_format.metadata_table.secondary_layout import indexed_column
from tidemark.hudi_format.storage import Storage
from tidemark.stream_runtime.clock import Clock

_READ_EVERY_S: Final = 1.0
_log = logging.getLogger("tidemark.assigner")

IndexedColumns = Callable[[], Mapping[str, str]]
"""Returns the secondary indexes of now: the name of the index's partition -> its column."""


def no_indexed_columns() -> Mapping[str, str]:
    """A table without secondary indexes."""
    return {}


class DefinedIndexes:
    """The secondary indexes that the table's list of definitions has, read once a second at most.

    Definitions count before the table lists the index: while another engine builds one, the rows that are
    refused here are those that its entries could not have.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        self._columns: dict[str, str] = {}
        self._read_at: float | None = None

    def __call__(self) -> Mapping[str, str]:
        """Index -> column. A list that cannot be read changes nothing: the coordinator says what is wrong
        with it, and commits nothing meanwhile.
        """
        now = self._clock.monotonic_s()
        if self._read_at is None or now - self._read_at >= _READ_EVERY_S:
            self._read_at = now
            try:
                self._columns = _columns_in(self._storage)
            except HudiFormatError as error:
                _log.warning("the indexed columns stay as they were: %s", error)
        return self._columns


def _columns_in(storage: Storage) -> dict[str, str]:
    definitions = read_index_definitions(storage)
    names = [name for name in definitions if name.startswith(SECONDARY_PREFIX)]
    return {name: indexed_column(name, definitions[name]) for name in names}


class TooLong(NamedTuple):
    """Rows that an index cannot have: their mask, and why, in words that name the column and the index."""

    rows: npt.NDArray[np.bool_]
    why: str


def values_too_long(
    indexes: Mapping[str, str], rows: pa.RecordBatch, record_keys: pa.StringArray
) -> Iterator[TooLong]:
    """The rows with a value that is too long, by index. ``record_keys``: null where none could be made.

    A column that the rows do not have, or of a type that no index takes, is passed over: the coordinator
    refuses such an index.
    """
    for name, column in indexes.items():
        at = rows.schema.get_field_index(column)
        if at < 0 or rows.schema.field(at).type not in INDEXED_TYPES:
            continue
        mask = keys_too_long(value_texts(rows.column(at)), pc.fill_null(record_keys, ""))
        if mask.any():
            yield TooLong(
                mask,
                f"the value of {column} and the record key take more than {KEY_BYTES_MAX} bytes together, "
                f"which is the limit of {name}",
            )
