"""Which instants of the metadata table count, given a listing of the data table's timeline that was made
before.

Stricter than Hudi's own rule ("completed here and not pending there"): a deltacommit counts only if its
instant is completed in the data listing, or older than that listing's first active instant, or is bootstrap
(ARCHITECTURE.md, "Cache tiers"), or if a restore made it: Hudi ends a restore with a deltacommit that brings
the `files` partition up to date and that the data timeline never has. Otherwise an instant that was
requested after the data listing and completed here before the metadata listing would be taken for committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.hudi_format.file_group.names import BaseFileName, parse_data_file
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.timeline import Action, Timeline

# Actions of the metadata table that fold or remove files: a snapshot's listing of files must not overlap
# them.
SERVICE_ACTIONS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True)
class InstantValidity:
    """The data table's timeline, and the metadata table's, listed in this order."""

    data: Timeline
    metadata: Timeline

    def is_valid(self, instant: str) -> bool:
        """Whether log blocks of that instant count."""
        if not self.metadata.is_committed(instant):
            return False
        found = self.metadata.find(instant)
        if is_bootstrap_instant(instant) or (found is not None and found.action is Action.LOG_COMPACTION):
            return True
        return self.data.is_committed(instant) or self.is_of_restore(instant)

    def is_of_restore(self, instant: str) -> bool:
        """Whether the data timeline lacks the instant because a completed restore made it: it was requested
        while that ran, and nobody else may write then.
        """
        return not self.data.contains(instant) and any(
            each.requested < instant < str(each.completion) for each in self.data.completed(Action.RESTORE)
        )

    def is_valid_base(self, instant: str) -> bool:
        """Whether base files of that instant count: a compaction's, or one whose logs would."""
        found = self.metadata.find(instant)
        if found is not None and found.action is Action.COMPACTION:
            return found.is_completed
        archived = self.metadata.is_archived(instant) and not self.data.contains(instant)
        return archived or self.is_valid(instant)

    def shows(self, file_name: str) -> bool:
        """Whether a file of the metadata table counts; what is no base or log file does not."""
        parsed = parse_data_file(file_name)
        if parsed is None:
            return False
        if isinstance(parsed, BaseFileName):
            return self.is_valid_base(parsed.instant)
        return self.is_valid(parsed.instant)

    def folded_too_early(self) -> list[str]:
        """Instants that a completed compaction may hold and that the data listing does not show as committed.

        Such a base file would be ahead of the listing: list again. A compaction never holds a pending
        instant, so an answer that stays means that somebody took a data instant back and left its index
        changes behind.
        """
        newest = max((each.requested for each in self.metadata.completed(Action.COMPACTION)), default=None)
        if newest is None:
            return []
        return [
            each.requested
            for each in self.metadata.completed(Action.DELTA_COMMIT)
            if str(each.completion) < newest and not self.is_valid(each.requested)
        ]

    def services(self) -> frozenset[str]:
        """Requested times of all instants, in whatever state, that fold or remove files of the metadata
        table.
        """
        return frozenset(each.requested for each in self.metadata.instants if each.action in SERVICE_ACTIONS)
