"""The timeline: its instants, their files and records, and the archive."""

from tidemark.hudi_format.timeline.archive_files import ArchivedInstant
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.instant import (
    TRANSITIONS,
    WRITTEN,
    Action,
    Instant,
    State,
    parse_file_name,
)
from tidemark.hudi_format.timeline.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Timeline, load_timeline

__all__ = [
    "DATA_ROOT",
    "METADATA_TABLE_ROOT",
    "TRANSITIONS",
    "WRITTEN",
    "Action",
    "ArchivedInstant",
    "ArchivedTimeline",
    "Instant",
    "State",
    "Timeline",
    "load_timeline",
    "parse_file_name",
]
