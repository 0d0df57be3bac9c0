"""Base files of the metadata table that another engine's build of an index hid: they count again before
anything is planned or decided.

The build completes at an instant `0000…N`, where the timeline begins from then on. Base files whose
compaction is in the archive do not count any more, for Hudi neither, and entries of the record index with
them. Example: partition `eu` was not written to for a month, and its base file's compaction is archived.
Spark switches column stats on. A late event for `eu` would find no entry, be an insert, and double its key.

So the first look behind a build, at each plan and decision of an epoch or a table service, puts such instants
back from the archive, under the lock: some at a time, so that other writers wait for none of it for long.
Assigners may have looked keys up meanwhile: a rewind follows, and caches read the index anew. A document in
the table says that the rewind is owed until it was made, for a successor.

If another engine compacted a shard of the record index behind the build, without its base file, entries are
lost: the table is not served until the index is rebuilt.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format.errors import HiddenBaseFilesError, UnsupportedTableError
from tidemark.hudi_format.metadata_table.archived_bases import (
    compacted_without,
    hidden_bases,
    renew_index_life,
    unhide,
)
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.timeline import ArchivedInstant, Timeline

REWIND_OWED: Final = join_path(ROOT, "rewind-owed")
_AT_ONCE: Final = 100
_log = logging.getLogger("tidemark.coordinator")


class HiddenBases:
    """Remembers behind which build it looked, "" behind none. The first look of a term is for a rewind that
    its predecessor owed, too. Used under the table's lock, but for `is_due`.
    """

    def __init__(self) -> None:
        self._looked_behind: str | None = None
        self._waiting: tuple[str, Sequence[ArchivedInstant]] | None = None
        self._reason = ""
        self._owed_at = 0

    def is_due(self, metadata: Timeline) -> bool:
        """Whether `check` has something to do."""
        return bool(self._reason) or newest_build(metadata) != self._looked_behind

    def check(self, by: Term, metadata: Timeline, generation: int) -> None:
        """As `put_back`; raises AttemptLostError (rewind) until the rewind was made."""
        if reason := self.put_back(by, metadata, generation):
            raise AttemptLostError(reason, rewind=True)

    def timelines(self, by: Term, generation: int) -> Timelines:
        """The timelines, on which all base files count. Raises as `put_back`."""
        found = load_timelines(by.storage)
        is_changed = self.is_due(found.metadata) and self.put_back(by, found.metadata, generation)
        return load_timelines(by.storage) if is_changed else found

    def put_back(self, by: Term, metadata: Timeline, generation: int) -> str:
        """Makes hidden base files count. Returns why a rewind is needed, "" when none is. ``generation``: how
        many rewinds there were. What was loaded before is out of date then.

        Raises HiddenBaseFilesError while some are still hidden, UnsupportedTableError where entries are lost,
        FencedOutError, LockLostError, OSError.
        """
        build = newest_build(metadata)
        if build != self._looked_behind:
            self._look(by, build, generation)
        if self._reason and generation > self._owed_at:
            by.storage.delete(REWIND_OWED)
            self._reason = ""
        return self._reason

    def _look(self, by: Term, build: str, generation: int) -> None:
        is_owed = by.storage.exists(REWIND_OWED)
        if self._waiting is None or self._waiting[0] != build:
            found = hidden_bases(by.storage, also_half=is_owed) if build else []
            if found and (lost := compacted_without(by.storage, build)):
                raise _entries_lost(build, lost)
            self._waiting = (build, found)
        hidden = self._waiting[1]
        if hidden or is_owed:
            by.replace(REWIND_OWED, build.encode())
            self._owed_at, self._reason = generation, _reason(build)
            unhide(by, hidden[:_AT_ONCE])
            rest = hidden[_AT_ONCE:]
            self._waiting = (build, rest)
            if rest:
                raise HiddenBaseFilesError(f"{self._reason}. They are put back, {len(rest)} to go")
            renew_index_life(by)
            _log.warning("%s. They count again", self._reason)
        self._looked_behind, self._waiting = build, None


def _reason(build: str) -> str:
    when = f"completed at {build}" if build else "archived since"
    return (
        f"another engine built an index of the metadata table ({when}), which hid base files "
        "of archived compactions: keys may have been looked up without them"
    )


def _entries_lost(build: str, lost: Sequence[str]) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"another engine built an index of the metadata table (completed at {build}), which hid base files "
        f"of archived compactions, and then compacted the record index without them: {lost[0]} and "
        f"{len(lost) - 1} more base files lack entries. Updates of their keys would double rows",
        "Stop the coordinator, build the record index anew with `tidemark table rebuild-index --shards N`",
    )
