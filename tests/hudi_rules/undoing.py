"""What a rollback and a restore take away."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
    """A completed commit can be rolled back when no later write is completed, and as `check_metadata` says.
    Raises RefusedError.
    """
    later = [each.requested for each in timeline.writes() if each.requested > instant]
    if later:
        raise RefusedError(f"found commits after {instant}: {later}")
    check_metadata(metadata, instant)
    if instant in timeline.savepoints:
        raise RefusedError(f"{instant} is savepointed")


def check_metadata(metadata: Timeline, instant: str) -> None:
    """What is rolled back, completed or pending, must not be completed in the metadata table and older than
    its newest compaction. Raises RefusedError.
    """
    there = metadata.instants.get(instant)
    compacted = max((each.requested for each in metadata.completed("compaction")), default="")
    if there is not None and there.completion is not None and there.requested <= compacted:
        raise RefusedError(f"{instant} is earlier than the metadata table's compaction {compacted}")


def to_restore(timeline: Timeline, savepoint: str) -> list[Instant]:
    """Writes that a restore rolls back, the newest first (`written_after` the savepoint's instant)."""
    if savepoint not in timeline.savepoints or timeline.completion(savepoint) is None:
        raise RefusedError(f"{savepoint} is no savepoint")
    return written_after(timeline, savepoint)


def written_after(timeline: Timeline, instant: str) -> list[Instant]:
    """Writes that completed after this one did, but compactions by the time at which they were requested; and
    pending ones that were requested after it. The newest first.
    """
    kept = str(timeline.completion(instant))
    done = [
        each
        for each in timeline.writes()
        if (each.requested > instant if each.action == "compaction" else str(each.completion) > kept)
    ]
    pending = [
        each
        for each in timeline.pending("commit", "deltacommit", "replacecommit", "compaction", "clustering")
        if each.requested > instant
    ]
    return [*reversed(pending), *sorted(done, key=lambda each: str(each.completion), reverse=True)]


def check_restore(metadata: Timeline, savepoint: str, dropped: Collection[str] = ()) -> None:
    """Where the oldest compaction on the metadata table's timeline is not older than the savepoint, or the
    savepoint is older than that timeline, Hudi builds the metadata table anew, and the record index has what
    was in it before the restore. Where the savepoint's commit completed there before an index was built, Hudi
    takes the building back like any write: the index lacks what it began with. ``dropped``: the instants that
    built indexes which the restore drops anyway. Raises RefusedError.
    """
    compacted = min((each.requested for each in metadata.completed("compaction")), default=None)
    if compacted is not None and compacted >= savepoint:
        raise RefusedError(f"the metadata table was compacted at {compacted}: Hudi builds it anew")
    if savepoint < (metadata.start or ""):
        raise RefusedError(f"the metadata table's timeline starts after {savepoint}: Hudi builds it anew")
    if is_built_after(metadata, savepoint, dropped):
        raise RefusedError(f"indexes were built after {savepoint}: Hudi takes that back")


def is_built_after(metadata: Timeline, savepoint: str, dropped: Collection[str] = ()) -> bool:
    """Whether an index was built after the savepoint's commit completed in the metadata table, by another
    instant than these.
    """
    after = written_after(metadata, savepoint)
    return any(each.builds and each.requested not in dropped for each in after)


def forgotten_by_restore(timeline: Timeline, savepoint: str) -> list[Instant]:
    """Rollbacks requested after the savepoint: a restore takes their instants away, too."""
    return [each for each in timeline.completed("rollback") if each.requested > savepoint]
