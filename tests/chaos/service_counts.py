"""How many actions of each kind of table service a table's timelines say that were completed, active and
archived: listed and decoded here, without the product's code.

A compaction is a commit that says so. An archival leaves no instant: it writes the next manifest of the
archive, and so does a merge of the archive's files. Attempts of epochs that were given up end as rollbacks,
too, so those of dead writes are told by the instants that they name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.chaos.archived import archive_version
from tests.chaos.data_files import documents
from tests.chaos.timeline_watch import COMPACTION, DATA_TIMELINE, METADATA_TIMELINE

COMPACT_DATA: Final = "compact-data"
ROLLBACK: Final = "rollback"
_TIMELINES: Final = {"data": DATA_TIMELINE, "index": METADATA_TIMELINE}
"""What the kinds of services call them -> where they are."""
ALWAYS_DUE: Final = frozenset(
    {f"{kind}-{of}" for of in _TIMELINES for kind in ("clean", "archive")} | {"compact-index"}
)
_MERGED: Final = "merge_on_read"


def ended_services(table: Path, dead_writes: Collection[str]) -> Counter[str]:
    """By kind, archivals by timeline. `dead_writes`: instants that are to be rolled back."""
    found: Counter[str] = Counter()
    for of, timeline in _TIMELINES.items():
        commits = documents(table, ("commit",), timeline)
        found[f"compact-{of}"] = sum(each.get("operationType") == COMPACTION for each in commits)
        found[f"clean-{of}"] = sum(1 for _ in documents(table, ("clean",), timeline))
        found[f"archive-{of}"] = archive_version(table, timeline)
    rolled_back = {
        instant for each in documents(table, ("rollback",)) for instant in each.get("commitsRollback") or ()
    }
    found[ROLLBACK] = len(rolled_back & set(dead_writes))
    return found


def due_services(table_type: str, dead_writes: Collection[str]) -> frozenset[str]:
    """The kinds that a table which is written all the time comes to."""
    merged = {COMPACT_DATA} if table_type == _MERGED else set()
    return ALWAYS_DUE | merged | ({ROLLBACK} if dead_writes else set())
