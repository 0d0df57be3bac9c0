"""Merges log rows that have only some of the table's columns, as Spark's MERGE INTO writes them.

Hudi merges the versions of a key one after the other, the base row last. Of two versions, the loser gives
only the columns that the winner lacks. The loser is the version with the lower ordering value; at equal
values, and by commit time always, it is the earlier one. Example by event time, base row (at 10: name a,
amount 1):

    log row (at 30: amount 3)     -> at 30: amount 3
    log row (at 20: name c)       -> at 30: name c, amount 3       fills a column that was missing
    base row                      -> at 30: name c, amount 3

This is done for all keys at once: round n merges the n-th version of every key that has one. Per key and
column, not the value is kept but the number of the row that gives it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.changes import Changes, combined, positions_in
from tidemark.hudi_format.ordering import NO_ORDERING, BoolArray, Int64Array, OrderingField
from tidemark.hudi_format.table_config import MergeMode

_NOBODY = -1


class _Merged:
    """The merged versions so far, per key. `source`: per key and column the log row that gives it, or -1."""

    def __init__(self, keys: int, columns: int, mode: MergeMode) -> None:
        self.source = np.full((keys, columns), _NOBODY, np.int64)
        self.is_row = np.zeros(keys, np.bool_)
        self.ordering = np.full(keys, NO_ORDERING, np.int64)
        self.unconditional = np.zeros(keys, np.bool_)
        self._by_commit_time = mode is MergeMode.COMMIT_TIME_ORDERING

    def add(self, keys: Int64Array, changes: Changes, has: BoolArray) -> None:
        """Merges one further version of each of these keys; no key occurs twice."""
        wins = (changes.ordering >= self.ordering[keys]) | changes.unconditional | self._by_commit_time
        is_row = ~changes.is_delete
        given = np.zeros((len(keys), has.shape[1]), np.bool_)
        given[is_row] = has[changes.row[is_row]]
        row = changes.row[:, None]
        was = np.where(self.is_row[keys][:, None], self.source[keys], _NOBODY)
        # A newer row goes over the columns so far; an older one goes under them and fills the missing ones.
        over, under = wins & is_row, ~wins & is_row & self.is_row[keys]
        now = np.where(over[:, None], np.where(given, row, was), was)
        now = np.where(under[:, None] & given & (was == _NOBODY), row, now)
        now[wins & ~is_row] = _NOBODY
        self.source[keys] = now
        winners = keys[wins]
        self.is_row[winners] = is_row[wins]
        self.unconditional[winners] = changes.unconditional[wins]
        self.ordering[winners] = np.where(changes.unconditional, NO_ORDERING, changes.ordering)[wins]


class PartialLogMerge:
    """`merge.LogMerge` for logs with partial rows: the same calls, and the same results.

    `has` tells, per log row and column, whether the row has the column.
    """

    def __init__(
        self,
        log_rows: pa.Table,
        has: BoolArray,
        changes: Changes,
        mode: MergeMode,
        ordering: OrderingField | None,
    ) -> None:
        self._log_rows, self._mode, self._ordering = log_rows, mode, ordering
        # Numbers instead of keys: a, b, a are the keys a, b, and their numbers 0, 1, 0.
        encoded = changes.keys.dictionary_encode()
        self._keys = encoded.dictionary
        key_of = np.asarray(encoded.indices).astype(np.int64)
        self._merged = _Merged(len(self._keys), log_rows.num_columns, mode)
        for positions in _rounds(key_of):
            self._merged.add(key_of[positions], changes.take(positions), has)
        self._known = np.zeros(len(self._keys), np.bool_)
        self.updates = self.inserts = self.deletes = 0

    def over(self, base_rows: pa.Table) -> pa.Table:
        """A part of the base file after the changes: its unchanged rows, then the changed ones."""
        merged = self._merged
        match = positions_in(base_rows.column(RECORD_KEY), self._keys)
        matched = np.flatnonzero(match >= 0)
        key = match[matched]
        self._known[key] = True
        loses = np.zeros(len(matched), np.bool_)
        ordering = self._ordering
        if self._mode is MergeMode.EVENT_TIME_ORDERING and ordering is not None and len(matched):
            stored = ordering.to_int64_or_lowest(base_rows.column(ordering.name).take(pa.array(matched)))
            loses = (stored > merged.ordering[key]) & ~merged.unconditional[key]
        stays = np.ones(base_rows.num_rows, np.bool_)
        stays[matched[~loses]] = False
        base_of = np.full(len(merged.is_row), _NOBODY, np.int64)
        base_of[key[~loses]] = matched[~loses]
        made = np.flatnonzero((base_of >= 0) & merged.is_row)
        self.updates += len(made)
        self.deletes += int((base_of >= 0).sum()) - len(made)
        return pa.concat_tables([base_rows.filter(pa.array(stays)), self._made(made, base_rows, base_of)])

    def rest(self) -> pa.Table:
        """The rows of the keys that no part of the base file had."""
        made = np.flatnonzero(self._merged.is_row & ~self._known)
        self.inserts = len(made)
        nowhere = np.full(len(self._known), _NOBODY, np.int64)
        return self._made(made, self._log_rows.schema.empty_table(), nowhere)

    def _made(self, keys: Int64Array, base_rows: pa.Table, base_of: Int64Array) -> pa.Table:
        # Columns that no log row gives come from the key's base row, which `_gathered` numbers behind the log
        # rows: with 5 log rows, a key with base row 2 and source [4, -1] takes [4, 7].
        source = self._merged.source[keys]
        of_base = base_of[keys]
        from_base = np.where(of_base >= 0, self._log_rows.num_rows + of_base, _NOBODY)[:, None]
        return _gathered(self._log_rows, base_rows, np.where(source == _NOBODY, from_base, source))


def _rounds(key_of: Int64Array) -> list[Int64Array]:
    """The positions of the first version of every key, then of the second version of every key that has one,
    …

    Keys 7, 8, 7 give the rounds [0, 1] and [2].
    """
    if not len(key_of):
        return []
    order = np.argsort(key_of, kind="stable")
    begins = np.flatnonzero(np.diff(key_of[order], prepend=-1))
    lengths = np.diff(np.append(begins, len(order)))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(begins, lengths)
    return [np.flatnonzero(rank == number) for number in range(int(rank.max()) + 1)]


def _gathered(log_rows: pa.Table, base_rows: pa.Table, source: Int64Array) -> pa.Table:
    """Builds rows column by column. `source` holds, per row and column, a position that counts the log rows
    first and then the base rows; -1 gives null.
    """
    columns = []
    for number, name in enumerate(log_rows.column_names):
        values = pa.concat_arrays([combined(log_rows.column(name)), combined(base_rows.column(name))])
        at = source[:, number]
        columns.append(values.take(pa.array(at, mask=at == _NOBODY)))
    return pa.Table.from_arrays(columns, schema=log_rows.schema)
