"""Base files of the metadata table that another engine's build of an index hid: they count again before
anything is planned or decided.

The build completes at an instant `0000…N`, where the timeline begins from then on. Base files whose
compaction is in the archive do not count any more, for Hudi neither, and entries of the record index with
them. Example: partition `eu` was not written to for a month, and its base file's compaction is archived.
Spark switches column stats on. A late event for `eu` would find no entry, be an insert, and double its key.

So the first look behind a build, at each plan and decision of an epoch or a table service, puts such instants
back from the archive, under the lock. Assigners may have looked keys up meanwhile: a rewind follows, and
caches read the index anew. What is put back is whole only behind the rewind: a successor that finds a part
rewinds as well.
"""

from __future__ import annotations

import logging

from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format.metadata_table.archived_bases import finish_unhiding, hidden_bases, unhide
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.timeline import Timeline

_log = logging.getLogger("tidemark.coordinator")


class HiddenBases:
    """Remembers behind which build it looked. Used under the table's lock."""

    def __init__(self) -> None:
        self._looked_behind = ""
        self._reason = ""
        self._generation = 0

    def check(self, by: Term, metadata: Timeline, generation: int) -> None:
        """As `put_back`; raises AttemptLostError (rewind) until the rewind was made."""
        if reason := self.put_back(by, metadata, generation):
            raise AttemptLostError(reason, rewind=True)

    def timelines(self, by: Term, generation: int) -> Timelines:
        """The timelines, on which all base files count. Raises as `put_back`."""
        found = load_timelines(by.storage)
        is_changed = self.put_back(by, found.metadata, generation)
        return load_timelines(by.storage) if is_changed else found

    def put_back(self, by: Term, metadata: Timeline, generation: int) -> str:
        """Makes hidden base files count. Returns why a rewind is needed, "" when none is. ``generation``: how
        many rewinds there were. What was loaded before is out of date then.

        Raises FencedOutError, LockLostError, OSError.
        """
        build = newest_build(metadata)
        if build == self._looked_behind:
            return ""
        if self._reason and generation == self._generation:
            return self._reason
        hidden = hidden_bases(by.storage) if build else []
        if hidden and not self._reason:
            unhide(by, hidden)
            self._generation = generation
            self._reason = (
                f"another engine built an index of the metadata table (completed at {build}), which hid base "
                f"files of {len(hidden)} archived compactions: keys may have been looked up without them"
            )
            _log.warning("%s. They count again", self._reason)
            return self._reason
        finish_unhiding(by, hidden)
        self._looked_behind, self._reason = build, ""
        return ""
