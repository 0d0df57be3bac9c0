"""Secondary indexes of an epoch: the entries that each data file changes, and the log files of the metadata
table that get them.

1. A data task compares the live rows of a file group before and after its file
   (`file_group/value_changes.py`), and packs the entries of each file group of an index.
2. Then a task for each file group of an index that gets entries puts together what all data tasks have for
   it, and makes the log file.

Over all data files of the epoch a put beats a delete of the same entry. Example: key k moves from partition
eu to us and keeps its city paris. The task of eu says delete (paris, k), the task of us put (paris, k), and
only here both are seen: the entry has to stay, or queries for paris would miss the row.

Both steps are functions of the epoch's rows and of the slices as of its plan, so each run writes the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.kept_indexes import KeptSecondary
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.value_changes import RowsChanged, ValuePairs, values_changed
from tidemark.hudi_format.hfile.layout import KEY_BYTES_MAX
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    group_of,
    keyed,
    keys_too_long,
    prefixes,
    value_texts,
)
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Attempt
from tidemark.stream_writer.epoch_tasks import SecondaryTask
from tidemark.stream_writer.packed_rows import packed, unpacked
from tidemark.stream_writer.publishing import prepare_file
from tidemark.stream_writer.task_outcome import GroupEntries, TaskSucceeded

# A part as a message: composite keys, and whether each is put or deleted.
_KEY: Final = "key"
_IS_PUT: Final = "is_put"
_PART: Final = pa.schema([pa.field(_KEY, pa.string()), pa.field(_IS_PUT, pa.bool_())])
_ROWS_AT_ONCE: Final = 131_072


class SecondaryEntries:
    """The entries that the files of one task change, in all secondary indexes that the table has."""

    def __init__(self, indexes: Sequence[KeptSecondary]) -> None:
        self._indexes = indexes
        self._changed: list[RowsChanged] = []
        self._rows = 0
        self._parts: dict[tuple[str, int], list[pa.Table]] = {}

    @property
    def columns(self) -> list[str]:
        """The indexed columns; none without an index."""
        return [index.column for index in self._indexes]

    def add(self, changed: RowsChanged) -> None:
        """Adds what one data file changes.

        Here or in `packed` UnsupportedTableError is raised for a row whose value and key are too long for an
        entry. Such records become dead letters before they are tagged, except those that were tagged before
        the index was made.
        """
        self._changed.append(changed.only(self.columns))
        self._rows += changed.before.num_rows + changed.after.num_rows
        if self._rows >= _ROWS_AT_ONCE:
            self._divide()

    def packed(self) -> tuple[GroupEntries, ...]:
        """All of it, by file group. Raises as `add`."""
        self._divide()
        by_group = []
        for index, group in sorted(self._parts):
            part = pa.concat_tables(self._parts[index, group])
            by_group.append(GroupEntries(index, group, part.num_rows, packed(part)))
        return tuple(by_group)

    def _divide(self) -> None:
        """Divides what was added among the file groups of each index, of many data files at once: a file of
        an epoch often has a few hundred rows.
        """
        for index in self._indexes if self._changed else ():
            changes = values_changed(self._changed, index.column)
            _refuse_too_long(index, changes.puts)
            pairs = ValuePairs.concat([changes.puts, changes.deletes])
            of_values = prefixes(value_texts(pairs.values))
            groups = group_of(of_values, index.groups)
            is_put = pa.array(np.arange(len(pairs)) < len(changes.puts))
            entries = pa.table([keyed(of_values, pairs.keys), is_put], schema=_PART)
            # Groups 1, 0, 1 have the order 1, 0, 2, the bounds 0, 1, 3, and so the slices [1] and [0, 2].
            entries = entries.take(pa.array(np.argsort(groups, kind="stable")))
            bounds = np.cumsum([0, *np.bincount(groups, minlength=index.groups)]).tolist()
            for group, (first, end) in enumerate(itertools.pairwise(bounds)):
                if end > first:
                    part = entries.slice(first, end - first)
                    self._parts.setdefault((index.name, group), []).append(part)
        self._changed, self._rows = [], 0


def _refuse_too_long(index: KeptSecondary, puts: ValuePairs) -> None:
    too_long = np.flatnonzero(keys_too_long(value_texts(puts.values), puts.keys))
    if len(too_long):
        name = index.name.removeprefix(SECONDARY_PREFIX)
        raise UnsupportedTableError(
            f"the value of {index.column} in the row of key {puts.keys[too_long[0]].as_py()[:80]!r} and the "
            f"key take more than {KEY_BYTES_MAX} bytes together, which is the limit of {index.name}",
            f"The record was tagged before the index was made: run `tidemark index drop {name}`, then "
            "`tidemark epoch retry`",
        )


def write_secondary_group(task: SecondaryTask, attempt: Attempt) -> TaskSucceeded:
    """Makes the log file of one file group and has it prepared. Raises FencedOutError, CorruptFileError if an
    earlier run made another one visible.
    """
    changes = reduced([unpacked(part) for part in task.parts])
    log, data = SecondaryIndexPartition(task.index).log_file(changes, task.instant, ShardId(task.group))
    ticket = prepare_file(attempt, log.path, data)
    return TaskSucceeded(metadata_logs=(log.prepared(ticket),))


def reduced(parts: Sequence[pa.Table]) -> SecondaryChanges:
    """What an epoch changes in one file group: each key once, and put if any data file puts it."""
    entries = pa.concat_tables([_PART.empty_table(), *parts]).combine_chunks()
    keys, is_put = entries.column(_KEY).combine_chunks(), entries.column(_IS_PUT).combine_chunks()
    puts, deletes = keys.filter(is_put).unique(), keys.filter(pc.invert(is_put)).unique()
    return SecondaryChanges(puts, deletes.filter(pc.invert(pc.is_in(deletes, value_set=puts))))
