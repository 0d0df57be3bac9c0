"""Index entries that another engine left behind when it replaced file groups.

Hudi's insert overwrite and delete partition take the entries of replaced file groups out of the record index
by reading their *base files* (`HoodieBackedTableMetadataWriter.getRecordIndexReplacedRecords` of 1.2.0). A
row that lies in a log file alone keeps its entry. Example: key k was inserted into a log file of group G, a
delete partition replaces G: no reader finds a row of k, and the index still says G. An update that went to G
would be read by nobody.

So an entry whose file group was replaced is none: its key is absent. That stays so when the replacecommit is
archived, and its files are gone long ago. A clustering moves all rows and their entries, whichever file they
lie in: those of the archive need not be kept.
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
    """Which locations lie in replaced file groups, as of the timeline that was looked at last."""

    def __init__(self, storage: Storage, locations: Locations) -> None:
        self._storage = storage
        self._locations = locations
        self._timeline: Timeline | None = None
        self._view: TableView | None = None
        self._rows = ReplacedRows(storage)
        self._groups: Groups = frozenset()
        self._replaced = np.zeros(0, np.bool_)

    def look(self, timeline: Timeline) -> None:
        """Takes the data table's timeline over. Raises FileMissingError when it changed meanwhile: list it
        again.
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
        """Per location id whether its file group was replaced; False for NO_LOCATION."""
        if not self._groups:
            return np.zeros(len(locations), np.bool_)
        known = len(self._replaced)
        if known < len(self._locations):
            paths, ids = self._locations.partition_paths[known:], self._locations.file_ids[known:]
            found = [each in self._groups for each in zip(paths, ids, strict=True)]
            self._replaced = np.concatenate([self._replaced, np.array(found, np.bool_)])
        held = locations >= 0
        held[held] = self._replaced[locations[held]]
        return held
