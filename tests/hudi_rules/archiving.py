"""Which instants of the data table go to its history."""

from __future__ import annotations

from tests.hudi_rules.timeline import WRITES, Instant, Timeline


def to_archive(
    timeline: Timeline, metadata: Timeline, least: int, most: int, retained: str | None, deltas: int
) -> list[Instant]:
    """Completed instants in order of requested time: nothing unless there are more than ``most`` completed
    writes, then all but ``least`` of them, and cleans and rollbacks older than the last of these.

    They end before the newest completed write below the first pending one (or before that, if it is the
    first of all), the first savepoint, the first replacecommit that no clean has passed (``retained``: the
    earliest instant that the last clean kept, None without a clean), and the first instant that completed at
    or after the metadata table's newest compaction was requested; nothing goes as long as there was none.
    On MERGE_ON_READ the last ``deltas`` deltacommits stay, and while there are fewer since the newest
    compaction, that one, too (hoodie.compact.inline.max.delta.commits).
    """
    completed = timeline.writes()
    compacted = max((each.requested for each in metadata.completed("compaction")), default=None)
    if len(completed) <= most or compacted is None:
        return []
    limits = [
        compacted,
        completed[-least].requested,
        *_below_pending(timeline),
        *_for_compaction(timeline, deltas),
    ]
    limits += [each.requested for each in completed if str(each.completion) >= compacted]
    limits += timeline.savepoints
    replaces = [each.requested for each in timeline.completed("replacecommit", "clustering")]
    limits += [each for each in replaces if retained is None or each >= retained]
    limit = min(limits)
    gone = [each for each in completed if each.requested < limit]
    if not gone:
        return []
    last = gone[-1].requested
    beside = [each for each in timeline.completed("clean", "rollback") if each.requested < last]
    return sorted([*gone, *beside])


def _below_pending(timeline: Timeline) -> list[str]:
    pending = timeline.pending(*WRITES)[:1]
    below = [each.requested for each in timeline.writes() if pending and each < pending[0]]
    return below[-1:] or [each.requested for each in pending]


def _for_compaction(timeline: Timeline, deltas: int) -> list[str]:
    compactions = [each.requested for each in timeline.completed("compaction")][-1:]
    since = [
        each.requested
        for each in timeline.completed("deltacommit")
        if not compactions or str(each.completion) > compactions[0]
    ]
    return [since[-deltas]] if len(since) >= deltas else compactions or since[:1]
