"""Which instants of the data table go to its history."""

from __future__ import annotations

from dataclasses import dataclass

from tests.hudi_rules.cleaning import BLOCKING, earliest_commit
from tests.hudi_rules.table import HudiTable
from tests.hudi_rules.timeline import WRITES, Instant, Timeline


@dataclass(frozen=True)
class Keep:
    """How much stays on the timeline. ``least``, ``most``: completed writes (hoodie.keep.min.commits,
    hoodie.keep.max.commits). ``commits``: completed writes whose files a clean keeps
    (hoodie.clean.commits.retained), None where it counts versions. ``deltas``: deltacommits that stay for the
    next compaction (hoodie.compact.inline.max.delta.commits), None where that goes by time
    (hoodie.compact.inline.trigger.strategy).
    """

    least: int
    most: int
    commits: int | None
    deltas: int | None


def to_archive(table: HudiTable, metadata: Timeline, keep: Keep) -> list[Instant]:
    """Completed instants in order of requested time: nothing unless there are more than ``most`` completed
    writes, then all but ``least`` of them, and cleans and rollbacks older than the last of these. Both
    numbers grow when a clean would still want more: the writes after its earliest one, and two.

    They end before the newest completed write below the first pending one (or before that, if it is the
    first of all), the first savepoint, the first replacecommit that the last clean has not passed, and the
    first instant that completed after the metadata table's newest compaction was requested; nothing goes as
    long as there was none.
    On MERGE_ON_READ the last ``deltas`` deltacommits stay, pending ones counted, and while there are fewer
    since the newest compaction, that one, too.
    """
    timeline = table.timeline
    completed = timeline.writes()
    least, most = _numbers(timeline, keep)
    compacted = max((each.requested for each in metadata.completed("compaction")), default=None)
    if len(completed) <= most or compacted is None:
        return []
    limits = [
        completed[-least].requested,
        *_below_pending(timeline),
        *(_for_compaction(timeline, keep.deltas) if keep.deltas is not None else ()),
        *(each.requested for each in completed if str(each.completion) > compacted),
        *timeline.savepoints,
        *_not_cleaned(table),
    ]
    limit = min(limits)
    gone = [each for each in completed if each.requested < limit]
    if not gone:
        return []
    last = gone[-1].requested
    beside = [each for each in timeline.completed("clean", "rollback") if each.requested < last]
    return sorted([*gone, *beside])


def _numbers(timeline: Timeline, keep: Keep) -> tuple[int, int]:
    # A scheduled compaction holds a clean back, but not this.
    held = BLOCKING - {"compaction"}
    earliest = None if keep.commits is None else earliest_commit(timeline, keep.commits, held)
    if earliest is None:
        return keep.least, keep.most
    wanted = sum(each.requested > earliest.requested for each in timeline.writes()) + 2
    more = max(wanted - keep.least, 0)
    return keep.least + more, keep.most + more


def _below_pending(timeline: Timeline) -> list[str]:
    pending = timeline.pending(*WRITES)[:1]
    below = [each.requested for each in timeline.writes() if pending and each < pending[0]]
    return below[-1:] or [each.requested for each in pending]


def _not_cleaned(table: HudiTable) -> list[str]:
    """Replacecommits, pending ones too, from the last clean's earliest instant on; with a clean that counts
    versions from the clean itself on. A savepoint that the clean met holds back what is between the two.
    """
    replacing = ("replacecommit", "clustering")
    done = [each.requested for each in table.timeline.completed(*replacing)]
    found = [*done, *(each.requested for each in table.timeline.pending(*replacing))]
    cleans = table.timeline.completed("clean")[-1:]
    if not cleans:
        return found
    plan = table.plan(cleans[0])
    earliest = (plan["earliestInstantToRetain"] or {}).get("timestamp")
    saved = min((plan.get("extraMetadata") or {}).get("savepointed_timestamps", "").split(","))
    if earliest and saved and any(saved <= each <= earliest for each in done):
        earliest = saved
    return [each for each in found if each >= (earliest or cleans[0].requested)]


def _for_compaction(timeline: Timeline, deltas: int) -> list[str]:
    compactions = [each.requested for each in timeline.completed("compaction")][-1:]
    both = sorted([*timeline.completed("deltacommit"), *timeline.pending("deltacommit")])
    since = [
        each.requested
        for each in both
        if not compactions or (each.completion or each.requested) > compactions[0]
    ]
    return [since[-deltas]] if len(since) >= deltas else compactions or since[:1]
