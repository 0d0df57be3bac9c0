"""Which file groups one data compaction takes.

A compaction is committed wholly or not at all. So one file group that cannot be merged (a log file is
damaged, or of a kind that is not served) would keep all that are planned with it from being compacted, and as
it needs a compaction more and more it would be planned with them again and again. Such a group is left out,
and is tried again alone, with growing pauses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceNews
from tidemark.commit_coordinator.domain.slice_stats import GroupName, SliceStats, TableSlices
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.errors import HudiFormatError, in_words
from tidemark.hudi_format.table_services.operations import decode_plan
from tidemark.hudi_format.table_services.triggers import DataCompactionRule

ReadPlan = Callable[[ServicePlanned], bytes]
_log = logging.getLogger("tidemark.coordinator")


def due_groups(slices: TableSlices, rule: DataCompactionRule, now_ms: int) -> int:
    """How many groups a compaction could take now."""
    waiting = {group for group, failed in slices.failed.items() if now_ms < failed.until_ms}
    return sum(rule.score(stats, now_ms) >= 1.0 for stats in slices.data if stats.group not in waiting)


def chosen_groups(
    slices: TableSlices,
    rule: DataCompactionRule,
    now_ms: int,
    held: frozenset[GroupName],
    asked: bool = False,
) -> set[GroupName]:
    """The groups that need it most: as many as one action may have, or one whose merge failed, alone. What
    another engine planned to rewrite (``held``) is left to it. It needs a compaction more and more, and would
    take the place of all others. ``asked``: an operator asks, who may have repaired what failed.
    """
    scored = [(score, stats) for score, stats in _scored(slices, rule, now_ms) if stats.group not in held]
    others = [stats.group for _, stats in scored if stats.group not in slices.failed]
    failed = [stats.group for _, stats in scored if stats.group in slices.failed]
    if not asked or others:
        failed = [group for group in failed if slices.failed[group].until_ms <= now_ms]
    return set(failed[:1] or others[: rule.max_groups])


def _scored(slices: TableSlices, rule: DataCompactionRule, now_ms: int) -> Iterator[tuple[float, SliceStats]]:
    scored = ((rule.score(stats, now_ms), stats) for stats in slices.data)
    due = [(score, stats) for score, stats in scored if score >= 1.0]
    yield from sorted(due, key=lambda found: (-found[0], found[1].group))


class FailedMerges:
    """Tells the placement which file groups could not be merged. ``read_plan`` may raise OSError and
    HudiFormatError: then it is told at the next failure.
    """

    def __init__(self, placement: Placement, read_plan: ReadPlan) -> None:
        self._placement, self._read_plan = placement, read_plan

    def note(self, planned: ServicePlanned, news: ServiceNews, now_ms: int) -> None:
        """Notes the failure of an action's tasks. Of the metadata table all groups are compacted together."""
        if planned.kind is not ServiceKind.COMPACT_DATA or not news.unmergeable:
            return
        try:
            operations = decode_plan(self._read_plan(planned), planned.plan_path).operations
        except (OSError, HudiFormatError) as error:
            _log.warning("which file groups could not be merged is not known: %s", in_words(error))
            return
        named = [operations[number] for number in news.unmergeable if number < len(operations)]
        groups = [(operation.partition, operation.file_id) for operation in named]
        self._placement.merge_failed(groups, news.failure or "", now_ms)
