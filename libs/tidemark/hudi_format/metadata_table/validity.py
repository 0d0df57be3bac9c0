"""Which instants of the metadata table count, by a listing of the data table's timeline and a later one of
the metadata table's (METADATA_TABLE.md, section 8.1).

A completed deltacommit counts if one of these holds:

1. its instant is completed in the data listing, or older than the first active instant of that listing,
2. it is a bootstrap or a log compaction,
3. a restore made it: Hudi ends a restore with a deltacommit that brings `files` up to date and that the data
   timeline never has.

This is stricter than Hudi's rule, "completed in the metadata table and not pending in the data table". By
that rule an instant that was requested after the data listing, and completed in the metadata table before
the metadata listing, would count although its data commit is not complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.file_group.names import BaseFileName, parse_data_file
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.timeline import Action, Timeline

_LOG: Final = ".log."
# Actions of the metadata table that merge or remove files: files that were listed while one of them ran are
# no consistent view.
SERVICE_ACTIONS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True)
class InstantValidity:
    """The data table's timeline and the metadata table's, which was listed after it."""

    data: Timeline
    metadata: Timeline

    def is_valid(self, instant: str) -> bool:
        """Whether log blocks of that instant count (the rules above)."""
        if not self.metadata.is_committed(instant):
            return False
        found = self.metadata.find(instant)
        if is_bootstrap_instant(instant) or (found is not None and found.action is Action.LOG_COMPACTION):
            return True
        return self.data.is_committed(instant) or self.is_of_restore(instant)

    def is_of_restore(self, instant: str) -> bool:
        """Whether a completed restore made the instant: the data timeline lacks it, and it was requested
        while the restore ran, when nobody else may write.
        """
        return not self.data.contains(instant) and any(
            restore.requested < instant < str(restore.completion)
            for restore in self.data.completed(Action.RESTORE)
        )

    def is_valid_base(self, instant: str) -> bool:
        """Whether base files of that instant count: it is a completed compaction, or its logs would count.

        The metadata table's only commits are compactions. One whose plan is not there is named by its
        completed file alone: a rebuild of the record index makes the plan behind that file.
        """
        found = self.metadata.find(instant)
        if found is not None and found.action in (Action.COMPACTION, Action.COMMIT):
            return found.is_completed
        archived = self.metadata.is_archived(instant) and not self.data.contains(instant)
        return archived or self.is_valid(instant)

    def bases(self, names: Iterable[str]) -> Iterator[BaseFileName]:
        """The base files that count, of the names in a partition's folder."""
        return (base for base in base_files(names) if self.is_valid_base(base.instant))

    def shows(self, file_name: str) -> bool:
        """Whether a file of the metadata table counts. A name that is no base or log file does not."""
        parsed = parse_data_file(file_name)
        if parsed is None:
            return False
        if isinstance(parsed, BaseFileName):
            return self.is_valid_base(parsed.instant)
        return self.is_valid(parsed.instant)

    def folded_too_early(self) -> list[str]:
        """Deltacommits that a completed compaction may have merged and that do not count by these listings.

        Its base file may then be ahead of the data listing: list again. A compaction never merges a pending
        instant. So if the answer stays the same, somebody took a data instant back and left its changes in
        the index.
        """
        newest = max(
            (compaction.requested for compaction in self.metadata.completed(Action.COMPACTION)), default=None
        )
        if newest is None:
            return []
        return [
            commit.requested
            for commit in self.metadata.completed(Action.DELTA_COMMIT)
            if str(commit.completion) < newest and not self.is_valid(commit.requested)
        ]

    def services(self) -> frozenset[str]:
        """Requested times of all instants, in any state, whose actions are `SERVICE_ACTIONS`."""
        return frozenset(
            instant.requested for instant in self.metadata.instants if instant.action in SERVICE_ACTIONS
        )


def base_files(names: Iterable[str]) -> Iterator[BaseFileName]:
    """Those of the names in a partition's folder that are base files, whether they count or not. Names of
    logs are not parsed.
    """
    for name in names:
        parsed = None if _LOG in name else parse_data_file(name)
        if isinstance(parsed, BaseFileName):
            yield parsed
