"""Compares one shard of the record index with the rows whose keys hash to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.record_index import RecordIndexEntries
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.table_verification.findings import EXAMPLES_MAX, Findings, Kind

_NONE = -1


class IndexCheck:
    """Compares shard after shard. ``slices``: in the order of the numbers in the rows' ``slice`` column.
    ``name``: what findings call a shard.
    """

    def __init__(
        self,
        slices: Sequence[FileSlice],
        num_shards: int,
        findings: Findings,
        name: Callable[[ShardId], str],
    ) -> None:
        self._slices = slices
        self._num_shards = num_shards
        self._findings = findings
        self._name = name
        self._numbers = {
            RecordLocation(one.partition_path, one.file_id): number for number, one in enumerate(slices)
        }
        self.entries = 0
        self.rows = 0

    def compare(self, shard: ShardId, rows: pa.Table, entries: RecordIndexEntries) -> None:
        """Checks that every row of the shard has one entry, which names its file group, and every entry a
        row.

        ``rows``: as `KeysByShard.rows_of` returns them. Adds differences to the findings.
        """
        keys = _flat(rows.column("key"))
        at = rows.column("slice").to_numpy()
        indexed = entries.keys.cast(pa.large_string())
        self.rows += len(keys)
        self.entries += len(entries)
        self._report_doubled(keys, at)
        self._report(Kind.ENTRY_TWICE, _repeated(indexed))
        shards = record_index_shard(entries.keys, self._num_shards)
        self._report(
            Kind.ENTRY_IN_WRONG_SHARD, indexed.filter(pa.array(shards != shard)), f" in {self._name(shard)}"
        )
        has_row = pc.is_in(indexed, value_set=keys)
        self._report_entries(Kind.ENTRY_WITHOUT_ROW, entries, _true_at(pc.invert(has_row)))
        position = pc.fill_null(pc.index_in(keys, value_set=indexed), _NONE).to_numpy()
        missing = np.flatnonzero(position == _NONE)
        self._findings.add(
            Kind.ROW_WITHOUT_ENTRY,
            len(missing),
            (f"{keys[row].as_py()}: in {self._place(int(at[row]))}" for row in missing.tolist()),
        )
        self._compare_places(keys, at, entries, position)

    def _compare_places(
        self,
        keys: pa.Array,
        at: npt.NDArray[np.int32],
        entries: RecordIndexEntries,
        position: npt.NDArray[np.int32],
    ) -> None:
        # Slice numbers by location id, with a last cell that the id -1 picks: the entries of slices 4 and 7
        # with the location ids [1, 0, -1] name the slices [7, 4, -1].
        numbers = np.array(
            [self._numbers.get(place, _NONE) for place in entries.locations] + [_NONE], np.int32
        )
        named = numbers[entries.location_ids]
        known = np.flatnonzero(position != _NONE)
        wrong = known[named[position[known]] != at[known]]

        def examples() -> Iterator[str]:
            for row in wrong.tolist():
                location = entries.locations[int(entries.location_ids[position[row]])]
                yield (
                    f"{keys[row].as_py()}: the row is in {self._place(int(at[row]))}, the index says "
                    f"{location.partition_path or '(no partition)'} {location.file_id}"
                )

        self._findings.add(Kind.ENTRY_ELSEWHERE, len(wrong), examples())

    def _report_doubled(self, keys: pa.Array, at: npt.NDArray[np.int32]) -> None:
        doubled = _repeated(keys)

        def examples() -> Iterator[str]:
            for key in doubled:
                places = at[_true_at(pc.equal(keys, key))].tolist()
                yield f"{key.as_py()}: in {' and '.join(self._place(number) for number in places)}"

        self._findings.add(Kind.KEY_TWICE, len(doubled), examples())

    def _report(self, kind: Kind, keys: pa.Array, suffix: str = "") -> None:
        self._findings.add(kind, len(keys), (f"{key}{suffix}" for key in keys[:EXAMPLES_MAX].to_pylist()))

    def _report_entries(
        self, kind: Kind, entries: RecordIndexEntries, positions: npt.NDArray[np.intp]
    ) -> None:
        def examples() -> Iterator[str]:
            for position in positions.tolist():
                location = entries.locations[int(entries.location_ids[position])]
                yield (
                    f"{entries.keys[position].as_py()}: the index says "
                    f"{location.partition_path or '(no partition)'} {location.file_id}"
                )

        self._findings.add(kind, len(positions), examples())

    def _place(self, number: int) -> str:
        file_slice = self._slices[number]
        return f"{file_slice.partition_path or '(no partition)'} {file_slice.file_id}"


def _repeated(keys: pa.Array) -> pa.Array:
    """The distinct keys that occur more than once."""
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return keys[:0]
    # Of a, b, a the codes are 0, 1, 0, which occur 2 and 1 times: a is repeated.
    counts = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary))
    return encoded.dictionary.filter(pa.array(counts > 1))


def _true_at(mask: pa.Array) -> npt.NDArray[np.intp]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
