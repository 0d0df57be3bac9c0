"""Merging new versions into rows: COPY_ON_WRITE rewrites, and a base file with what its logs say.

Both follow Hudi 1.2.0's readers (FORMAT.md, section 7.2). By event time the newer record wins when its
ordering value is equal to the stored one or above it; an unconditional delete always wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.base_file import FILE_NAME, RECORD_KEY, constant_column
from tidemark.hudi_format.file_group.changes import Changes, Deletes, KeyPositions, combined, positions_in
from tidemark.hudi_format.file_group.partial_rows import PartialLogMerge
from tidemark.hudi_format.ordering import BoolArray, Int64Array, OrderingField
from tidemark.hudi_format.schema import IS_DELETED_FIELD
from tidemark.hudi_format.table_config import MergeMode


class DuplicateKeyError(HudiFormatError):
    """A record key occurs twice among the changes of one file group and commit: de-duplicate them first."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The merged rows, and the outcome of each change.

    updates + inserts + deletes + stale + unknown_deletes = number of changes. `applied_upserts` and
    `applied_deletes` tell per change whether it won against the stored row; a delete of an unknown key counts
    as applied, because there was nothing to lose against.
    """

    rows: pa.Table
    updates: int
    inserts: int
    deletes: int
    stale: int
    unknown_deletes: int
    applied_upserts: BoolArray
    applied_deletes: BoolArray


def merge_upserts(
    existing: pa.Table,
    upserts: pa.Table,
    deletes: Deletes,
    mode: MergeMode,
    ordering: OrderingField | None,
    new_file_name: str,
) -> MergeResult:
    """The rows of the next base file of a COPY_ON_WRITE file group.

    `existing` and `upserts` have the same schema, meta columns included. Unchanged rows keep their meta
    columns, except that `_hoodie_file_name` becomes `new_file_name` in all rows. Updated rows come after the
    unchanged ones. An upsert with `_hoodie_is_deleted` true is a delete with its ordering value. Raises
    `DuplicateKeyError`, `OrderingError`.
    """
    incoming = _incoming_changes(upserts, deletes, mode, ordering)
    match = positions_in(existing.column(RECORD_KEY), incoming.keys)
    known = np.zeros(len(incoming), np.bool_)
    known[match[match >= 0]] = True
    wins = _newer_than_existing(existing, incoming, match, mode, ordering)
    count = upserts.num_rows
    writes = wins & ~incoming.is_delete
    rows = _filtered(existing, ~_replaced(match, wins))
    if writes.any():
        rows = pa.concat_tables([rows, _filtered(upserts, writes[:count])])
    rows = rows.set_column(
        rows.schema.get_field_index(FILE_NAME),
        rows.schema.field(FILE_NAME),
        constant_column(new_file_name, rows.num_rows),
    )
    return MergeResult(
        rows=rows,
        updates=int((writes & known).sum()),
        inserts=int((writes & ~known).sum()),
        deletes=int((wins & incoming.is_delete & known).sum()),
        stale=int((~wins).sum()),
        unknown_deletes=int((incoming.is_delete & ~known).sum()),
        applied_upserts=wins[:count],
        applied_deletes=wins[count:],
    )


def apply_log(
    base: pa.Table | None,
    log_rows: pa.Table,
    changes: Changes,
    mode: MergeMode,
    ordering: OrderingField | None,
    has: BoolArray | None = None,
) -> pa.Table:
    """The live rows of a slice: its base rows (None without a base file) after the changes of its logs.
    Parameters are those of `log_merge`.
    """
    merge = log_merge(log_rows, changes, mode, ordering, has)
    parts = [] if base is None else [merge.over(base)]
    return pa.concat_tables([*parts, merge.rest()])


def log_merge(
    log_rows: pa.Table,
    changes: Changes,
    mode: MergeMode,
    ordering: OrderingField | None,
    has: BoolArray | None = None,
) -> LogMerge | PartialLogMerge:
    """The merge of a slice's log files with its base file, whose rows come in parts.

    `changes.row` points into `log_rows`. Log and base rows have the same schema, with at least the record key
    and, by event time, the ordering column. `has` tells, per log row and column, whether the row has the
    column; None when all rows have all columns.
    """
    if has is not None:
        return PartialLogMerge(log_rows, has, changes, mode, ordering)
    return LogMerge(log_rows, changes, mode, ordering)


class LogMerge:
    """Puts the changes of a slice's logs over its base rows, part by part: `over` for each part, then `rest`.

    `inserts`, `updates` and `deletes` count the changes that took effect; they are complete after `rest`.
    """

    def __init__(
        self, log_rows: pa.Table, changes: Changes, mode: MergeMode, ordering: OrderingField | None
    ) -> None:
        self._log_rows, self._mode, self._ordering = log_rows, mode, ordering
        self._changes = changes.reduce(mode)
        self._is_first_part = True
        self._positions: KeyPositions | None = None
        self._wins = np.ones(len(self._changes), np.bool_)
        self._known = np.zeros(len(self._changes), np.bool_)
        self.updates = self.inserts = self.deletes = 0

    def over(self, base: pa.Table) -> pa.Table:
        """The rows of a part of the base file that no change replaces."""
        match = self._match(base.column(RECORD_KEY))
        wins = _newer_than_existing(base, self._changes, match, self._mode, self._ordering)
        self._wins &= wins
        self._known[match[match >= 0]] = True
        return _filtered(base, ~_replaced(match, wins))

    def _match(self, keys: pa.ChunkedArray) -> Int64Array:
        """Per key the position of its change, -1 for none. An index pays from the second part on."""
        if self._is_first_part:
            self._is_first_part = False
            return positions_in(keys, self._changes.keys)
        if self._positions is None:
            self._positions = KeyPositions(self._changes.keys)
        return self._positions.of(keys)

    def rest(self) -> pa.Table:
        """The log rows that take effect, after all parts of the base file."""
        return taken_rows(self._log_rows, self.rest_positions())

    def rest_positions(self) -> Int64Array:
        """Where the rows of `rest` are among the log rows, ascending."""
        writes = self._wins & ~self._changes.is_delete
        self.updates, self.inserts = int((writes & self._known).sum()), int((writes & ~self._known).sum())
        self.deletes = int((self._wins & self._changes.is_delete & self._known).sum())
        return self._changes.row[writes]


def changes_of_rows(rows: pa.Table, mode: MergeMode, ordering: OrderingField | None) -> Changes:
    """The changes that data rows (of a log, or upserts) make. A null ordering value counts as the lowest
    one.
    """
    keys = combined(rows.column(RECORD_KEY))
    return Changes.of_rows(keys, ordering_of(rows, mode, ordering), _is_deleted(rows))


def ordering_of(rows: pa.Table, mode: MergeMode, ordering: OrderingField | None) -> Int64Array:
    """The ordering values of rows as int64; all 0 by commit time."""
    if mode is MergeMode.COMMIT_TIME_ORDERING:
        return np.zeros(rows.num_rows, np.int64)
    if ordering is None:
        raise HudiFormatError("EVENT_TIME_ORDERING needs an ordering field: set hoodie.table.ordering.fields")
    return ordering.to_int64_or_lowest(rows.column(ordering.name))


def _incoming_changes(
    upserts: pa.Table, deletes: Deletes, mode: MergeMode, ordering: OrderingField | None
) -> Changes:
    if mode is MergeMode.EVENT_TIME_ORDERING and ordering is not None:
        ordering.to_int64(upserts.column(ordering.name))
    parts = [changes_of_rows(upserts, mode, ordering), Changes.of_deletes(deletes)]
    changes = Changes.concat(parts, [upserts.num_rows, 0])
    distinct = pc.count_distinct(changes.keys).as_py()
    if distinct != len(changes):
        raise DuplicateKeyError(f"{len(changes)} changes of one file group name only {distinct} record keys")
    return changes


def _newer_than_existing(
    existing: pa.Table, changes: Changes, match: Int64Array, mode: MergeMode, ordering: OrderingField | None
) -> BoolArray:
    """Per change whether it wins against the existing row of its key.

    `match` is per existing row the position of its change, -1 for none.
    """
    wins = np.ones(len(changes), np.bool_)
    if mode is MergeMode.COMMIT_TIME_ORDERING:
        return wins
    rows = np.flatnonzero(match >= 0)
    if not len(rows):
        return wins
    if ordering is None:
        raise HudiFormatError("EVENT_TIME_ORDERING needs an ordering field: set hoodie.table.ordering.fields")
    # Only rows that have a change are compared. match [1, -1, 0]: rows 0 and 2 are compared with changes 1
    # and 0; if row 0 has the greater value, change 1 loses.
    stored = ordering.to_int64_or_lowest(existing.column(ordering.name).take(pa.array(rows)))
    change = match[rows]
    loses = (stored > changes.ordering[change]) & ~changes.unconditional[change]
    wins[change[loses]] = False
    return wins


def _replaced(match: Int64Array, wins: BoolArray) -> BoolArray:
    """Per existing row whether its change (`match`, -1 for none) wins and so replaces it.

    match [1, -1, 0] and wins [False, True] give [True, False, False].
    """
    replaced = match >= 0
    replaced[replaced] = wins[match[replaced]]
    return replaced


def _is_deleted(rows: pa.Table) -> BoolArray:
    if IS_DELETED_FIELD not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    return np.asarray(pc.fill_null(rows.column(IS_DELETED_FIELD), False)).astype(np.bool_)


def _filtered(rows: pa.Table, mask: BoolArray) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))


def taken_rows(rows: pa.Table, positions: Int64Array) -> pa.Table:
    """The rows at ascending positions. Filtering by a mask keeps the chunks, so no column has to fit one
    array.
    """
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[positions] = True
    return _filtered(rows, mask)
