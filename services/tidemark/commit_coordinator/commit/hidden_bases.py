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

The timeline begins at `0000…N` also while that is pending, be its builder alive or dead.

If another engine compacted a file group behind the build, without its base file, entries are lost. With a
record index that lacks some the table is not served until it is rebuilt. A secondary index is taken out, and
so are column stats: queries would lose rows by them. `status` says so, and how they are made again. Example:
no city changes for a month. Spark makes another index, one city changes, and Spark compacts the metadata
table: the new base file of that group has one entry. Whoever cleans the former base file before anybody looks
leaves nothing that could tell: `tidemark verify` finds what is missing then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.commit.taken_out_index import how_to_make, take_out_indexes
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format.errors import HiddenBaseFilesError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import COLUMN_STATS, RECORD_INDEX
from tidemark.hudi_format.metadata_table.archived_bases import (
    compacted_without,
    hidden_bases,
    renew_index_life,
    unhide,
)
from tidemark.hudi_format.metadata_table.own_stats import disown_stats
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.model import is_bootstrap_instant
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

    def __init__(self, note: Callable[[str, str], None] = lambda name, reason: None) -> None:
        """``note``: is told each index that is taken out, but for column stats, and why."""
        self._note = note
        self._looked_behind: str | None = None
        self._waiting: tuple[str, Sequence[ArchivedInstant]] | None = None
        self._reason = ""
        self._owed_at = 0

    def is_due(self, metadata: Timeline) -> bool:
        """Whether `check` has something to do."""
        return bool(self._reason) or _build(metadata) != self._looked_behind

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
        build = _build(metadata)
        if build != self._looked_behind:
            self._look(by, build, newest_build(metadata), generation)
        if self._reason and generation > self._owed_at:
            by.storage.delete(REWIND_OWED)
            self._reason = ""
        return self._reason

    def _look(self, by: Term, build: str, completed: str, generation: int) -> None:
        is_owed = by.storage.exists(REWIND_OWED)
        if self._waiting is None or self._waiting[0] != build:
            found = hidden_bases(by.storage, also_half=is_owed) if build else []
            if found and completed:
                # Also behind a pending build: an earlier one hid them, and may have been compacted on.
                self._leave_damaged(by, completed, compacted_without(by.storage, completed, found))
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

    def _leave_damaged(self, by: Term, build: str, lost: Mapping[str, Sequence[str]]) -> None:
        """Takes out the indexes that lack entries, before the hidden files count again: then nothing would
        tell any more. ``lost``: as `compacted_without` tells.
        """
        why = (
            f"another engine made an index (completed at {build}), which hid files of this one, and "
            "compacted it without them"
        )
        if COLUMN_STATS in lost:
            disown_stats(by, why)
        others = lost.keys() - {COLUMN_STATS, RECORD_INDEX}
        columns = take_out_indexes(by, others) if others else {}
        for name in sorted(others):
            reason = (
                f"{why} ({lost[name][0]} lacks entries): it was taken out of the table. Queries lose no "
                f"rows, and read more files. {how_to_make(name, columns.get(name))}"
            )
            self._note(name, reason)
            _log.warning("%s: %s", name, reason)
        if RECORD_INDEX in lost:
            raise _entries_lost(build, lost[RECORD_INDEX])


def _build(metadata: Timeline) -> str:
    """What the timeline begins at: the instant of a build that is pending, else when the newest one
    completed, "" for none.
    """
    pending = (instant.requested for instant in metadata.pending() if is_bootstrap_instant(instant.requested))
    return max(pending, default="") or newest_build(metadata)


def _is_pending(build: str) -> bool:
    return is_bootstrap_instant(build)


def _reason(build: str) -> str:
    did = f"built an index of the metadata table ({f'completed at {build}' if build else 'archived since'})"
    if _is_pending(build):
        did = f"builds an index of the metadata table ({build} is pending)"
    return (
        f"another engine {did}, which hid base files of archived compactions: keys may have been looked up "
        "without them"
    )


def _entries_lost(build: str, lost: Sequence[str]) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"another engine built an index of the metadata table (completed at {build}), which hid base files "
        f"of archived compactions, and then compacted the record index without them: {lost[0]} and "
        f"{len(lost) - 1} more base files lack entries. Updates of their keys would double rows",
        "Stop the coordinator, build the record index anew with `tidemark table rebuild-index --shards N`",
    )
