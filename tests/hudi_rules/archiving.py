"""Which instants of the data table go to its history."""

from __future__ import annotations

from tests.hudi_rules.timeline import Instant, Timeline


def to_archive(
    timeline: Timeline, metadata: Timeline, least: int, most: int, retained: str | None
) -> list[Instant]:
    """Completed instants in order of requested time: nothing unless there are more than ``most`` completed
    writes, then all but ``least`` of them, and cleans and rollbacks older than the last of these.

    They end before the first pending instant, the first savepoint, the first replacecommit that no clean has
    passed (``retained``: the earliest instant that the last clean kept, None without a clean), the newest
    compaction on MERGE_ON_READ, and the first instant that completed at or after the metadata table's newest
    compaction was requested; nothing goes as long as there was none.
    """
    completed = timeline.writes()
    compacted = max((each.requested for each in metadata.completed("compaction")), default=None)
    if len(completed) <= most or compacted is None:
        return []
    limits = [compacted, completed[-least].requested]
    limits += [each.requested for each in timeline.pending() if each.action not in ("clean", "rollback")]
    limits += [each.requested for each in completed if str(each.completion) >= compacted]
    limits += timeline.savepoints
    replaces = [each.requested for each in timeline.completed("replacecommit", "clustering")]
    limits += [each for each in replaces if retained is None or each >= retained]
    compactions = [each.requested for each in timeline.completed("compaction")]
    limits += compactions[-1:]
    limit = min(limits)
    gone = [each for each in completed if each.requested < limit]
    if not gone:
        return []
    last = gone[-1].requested
    beside = [each for each in timeline.completed("clean", "rollback") if each.requested < last]
    return sorted([*gone, *beside])
