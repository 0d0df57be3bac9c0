"""Writes that were open when a compaction of their file groups was planned, as archival has to know them."""

from __future__ import annotations

from typing import Final

from tidemark.commit_coordinator.commit.unwritten_plans import settled_view
from tidemark.commit_coordinator.table_services.handler import LockedStep
from tidemark.commit_coordinator.table_services.listings import log_instant, names_of
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.timeline import Instant
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

_KNOWN_MAX: Final = 10_000


class LateWrites:
    """Knows the writes that it was asked about and that are behind no compaction any more: later ones put
    none of them behind another. So a long timeline costs the files of each late write once.
    """

    def __init__(self) -> None:
        self._settled: set[str] = set()

    def lies_behind(self, step: LockedStep, write: Instant) -> bool:
        """Whether a log file of the completed write is in a current slice whose base file was requested after
        the write.
        """
        if write.file_name in self._settled:
            return False
        if _lies_behind(step, write):
            return True
        if len(self._settled) >= _KNOWN_MAX:
            self._settled.clear()
        self._settled.add(write.file_name)
        return False


def _lies_behind(step: LockedStep, write: Instant) -> bool:
    """Looks at the file groups that the write names."""
    path, view = instant_path(write), settled_view(step.context, step.timelines)
    written = decode_commit_metadata(step.context.storage.read(path), path).write_stats
    for partition, stats in written.items():
        file_ids = {stat.file_id for stat in stats}
        for file_slice in view.slices({partition: names_of(step.names(partition), file_ids)}):
            is_behind = file_slice.base_instant > write.requested
            if is_behind and write.requested in map(log_instant, file_slice.log_files):
                return True
    return False
