"""What a rollback and a restore take away."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hudi_rules.slices import parse_data_file
from tests.hudi_rules.timeline import Instant, Timeline


class RefusedError(Exception):
    """Hudi would fail, partly half-way: nobody does it."""


def files_of(files: Mapping[str, list[str]], instant: str) -> dict[str, list[str]]:
    """Partition path -> files that an instant wrote, by their names."""
    found: dict[str, list[str]] = {}
    for partition, names in files.items():
        mine = [n for n in names if (file := parse_data_file(n)) is not None and file.instant == instant]
        if mine:
            found[partition] = sorted(mine)
    return found


def check_rollback(timeline: Timeline, metadata: Timeline, instant: str) -> None:
    """A completed commit can be rolled back when no later write is completed, and the metadata table has not
    been compacted since it completed there. Raises RefusedError.
    """
    later = [each.requested for each in timeline.writes() if each.requested > instant]
    if later:
        raise RefusedError(f"found commits after {instant}: {later}")
    there = metadata.instants.get(instant)
    compacted = max((each.requested for each in metadata.completed("compaction")), default="")
    if there is not None and there.completion is not None and there.requested <= compacted:
        raise RefusedError(f"{instant} is earlier than the metadata table's compaction {compacted}")
    if instant in timeline.savepoints:
        raise RefusedError(f"{instant} is savepointed")


def to_restore(timeline: Timeline, savepoint: str) -> list[Instant]:
    """Writes that a restore rolls back, the newest first: what completed after the savepoint's instant, but
    compactions by the time at which they were requested; and what is pending and was requested after it.
    """
    kept = timeline.completion(savepoint)
    if savepoint not in timeline.savepoints or kept is None:
        raise RefusedError(f"{savepoint} is no savepoint")
    done = [
        each
        for each in timeline.writes()
        if (each.requested > savepoint if each.action == "compaction" else str(each.completion) > kept)
    ]
    pending = [
        each
        for each in timeline.pending("commit", "deltacommit", "replacecommit", "compaction", "clustering")
        if each.requested > savepoint
    ]
    return [*reversed(pending), *sorted(done, key=lambda each: str(each.completion), reverse=True)]


def forgotten_by_restore(timeline: Timeline, savepoint: str) -> list[Instant]:
    """Rollbacks requested after the savepoint: a restore takes their instants away, too."""
    return [each for each in timeline.completed("rollback") if each.requested > savepoint]
