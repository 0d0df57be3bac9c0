"""In which order a commit of ours may complete what (G4, G5)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.world.checkers.timelines import Timeline


def newest_completion(timeline: Timeline) -> str:
    """The greatest completion time of a timeline, "" where nothing is completed."""
    return max([*timeline.completed.values(), *timeline.others.values()], default="")


def order_faults(
    before: Timeline, after: Timeline, m_before: Timeline, m_after: Timeline, newest: str
) -> Iterator[tuple[str, str]]:
    """(guarantee, what is wrong) with what we completed on the data timeline and the metadata table's.

    Our completion times are above all that there was (``newest``), also above those of an engine whose clock
    is ahead; a metadata deltacommit completes first, within its instant.
    """
    for old, new, what in ((m_before, m_after, "metadata"), (before, after, "data")):
        fresh = {**new.completed, **new.others}.items() - {**old.completed, **old.others}.items()
        for instant, completion in sorted(fresh, key=lambda each: each[1]):
            if instant.startswith("00000000000000"):
                continue
            if completion <= instant:
                yield "G5", f"{what} instant {instant} completes before it begins, at {completion}"
            if completion <= newest:
                yield "G5", f"{what} instant {instant} completes at {completion}, before {newest}"
            newest = max(newest, completion)
    for instant in after.completed.keys() - before.completed.keys():
        if instant not in m_after.completed:
            yield "G4", f"data instant {instant} completes before its metadata deltacommit"
    for instant in m_after.completed.keys() - m_before.completed.keys():
        known = instant in after.hudi.instants
        if not known and instant not in m_after.compactions and not instant.startswith("0000000000"):
            yield "G4", f"metadata deltacommit {instant} without a data instant on the timeline"
