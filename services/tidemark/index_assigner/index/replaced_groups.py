"""Recognises index entries of replaced file groups, which Hudi leaves behind; their keys count as absent.

Hudi's insert overwrite and delete partition remove the entries of replaced file groups from the record
index by reading the groups' *base files* (`HoodieBackedTableMetadataWriter.getRecordIndexReplacedRecords`
of 1.2.0). A row that is only in a log file keeps its entry. Example: key k was inserted into a log file of
group G, then a delete partition replaces G. No reader finds a row of k, but the index still names G. An
update of k that was written to G would never be read.

The entry stays invalid when the replacecommit is archived and its files are removed, so archived
replacecommits are read as well. Archived clusterings are not: a clustering moves all rows and their
entries, also those in log files.
"""

from __future__ import annotations

import numpy as np

from tidemark.hudi_format.replaced_rows import Groups, ReplacedRows
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Timeline
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray


class ReplacedGroups:
    """The replaced file groups of the timeline given last."""

    def __init__(self, storage: Storage, locations: Locations) -> None:
        self._storage = storage
        self._locations = locations
        self._timeline: Timeline | None = None
        self._view: TableView | None = None
        self._rows = ReplacedRows(storage)
        self._groups: Groups = frozenset()
        self._replaced = np.zeros(0, np.bool_)

    def look(self, timeline: Timeline) -> None:
        """Reads the replaced file groups of the data table's timeline.

        Raises FileMissingError when the timeline changed meanwhile: list it again.
        """
        if timeline is self._timeline:
            return
        self._view = TableView.of(self._storage, timeline, self._view)
        self._groups = frozenset(self._view.replaced)
        if timeline.archive is not None:
            self._groups |= self._rows.archived(timeline.archive)
        self._replaced = np.zeros(0, np.bool_)
        self._timeline = timeline

    def hold(self, locations: Int32Array) -> BoolArray:
        """Whether the file group of each location id was replaced; False for NO_LOCATION."""
        if not self._groups:
            return np.zeros(len(locations), np.bool_)
        known = len(self._replaced)
        if known < len(self._locations):
            paths, ids = self._locations.partition_paths[known:], self._locations.file_ids[known:]
            replaced = [group in self._groups for group in zip(paths, ids, strict=True)]
            self._replaced = np.concatenate([self._replaced, np.array(replaced, np.bool_)])
        held = locations >= 0
        held[held] = self._replaced[locations[held]]
        return held
