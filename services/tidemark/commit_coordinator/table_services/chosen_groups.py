"""Which file groups one data compaction takes.

A compaction is committed wholly or not at all. So one file group that cannot be merged (a log file is
damaged, or of a kind that is not served) would keep all that are planned with it from being compacted, and as
it needs a compaction more and more it would be planned with them again and again. Such a group is left out,
and is tried again alone, with growing pauses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceNews
from tidemark.commit_coordinator.domain.service_actions import TASK_TRIES_MAX
from tidemark.commit_coordinator.domain.slice_stats import GroupName, TableSlices
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


class GroupChoice:
    """Chooses the groups of each plan: those that need it most, as many as one action may have, or one whose
    merge failed, alone.

    Where both wait they take turns, so neither waits for more than one action of the other. Example: a and b
    have failed, c and d are due in every minute. The plans are: a; c, d; b; c, d. When the pauses of a and b
    are not over: c, d; c, d. What an operator asks for has turns of its own, and does not wait for pauses: he
    may have repaired what failed.
    """

    def __init__(self) -> None:
        # Whose last plan was that of a group which had failed: those that are asked for, and the others.
        self._retried: set[bool] = set()

    def groups(
        self,
        slices: TableSlices,
        rule: DataCompactionRule,
        now_ms: int,
        held: frozenset[GroupName],
        asked: bool = False,
    ) -> set[GroupName]:
        """The groups of the next plan. What another engine planned to rewrite (``held``) is left to it. It
        needs a compaction more and more, and would take the place of all others.
        """
        found = [group for group in _due(slices, rule, now_ms) if group not in held]
        others = [group for group in found if group not in slices.failed]
        failed = {group: slices.failed[group] for group in found if group in slices.failed}
        waiting = [group for group, merge in failed.items() if asked or merge.until_ms <= now_ms]
        if waiting and (asked not in self._retried or not others):
            self._retried.add(asked)
            return {min(waiting, key=lambda group: (failed[group].at_ms, group))}
        self._retried.discard(asked)
        return set(others[: rule.max_groups])


def _due(slices: TableSlices, rule: DataCompactionRule, now_ms: int) -> list[GroupName]:
    """The groups that need a compaction, those that need it most first."""
    scored = ((rule.score(stats, now_ms), stats.group) for stats in slices.data)
    due = [(score, group) for score, group in scored if score >= 1.0]
    return [group for _, group in sorted(due, key=lambda found: (-found[0], found[1]))]


class FailedMerges:
    """Tells the placement which file groups could not be merged. ``read_plan`` may raise OSError and
    HudiFormatError: then it is told at the next failure.
    """

    def __init__(self, placement: Placement, read_plan: ReadPlan) -> None:
        self._placement, self._read_plan = placement, read_plan
        # The failures of the open action's tasks: there is one of the kind.
        self._tries: list[ServiceNews] = []

    def note(self, planned: ServicePlanned, news: ServiceNews, is_last: bool, now_ms: int) -> bool:
        """Notes that the tasks of an action failed; ``is_last``: it is given up because of that. Returns
        whether file groups are the cause, which the next plans leave out. Of the metadata table all groups
        are compacted together.
        """
        if planned.kind is not ServiceKind.COMPACT_DATA:
            return False
        self._tries = [*(former for former in self._tries if former.number == news.number), news]
        if not is_last:
            return False
        tries, self._tries = self._tries, []
        try:
            operations = decode_plan(self._read_plan(planned), planned.plan_path).operations
        except (OSError, HudiFormatError) as error:
            _log.warning("which file groups could not be merged is not known: %s", in_words(error))
            return False
        groups = [(operation.partition, operation.file_id) for operation in operations]
        blamed = _blamed(tries)
        if len(groups) == 1 and groups[0] in self._placement.snapshot().failed:
            # It was tried again alone: whatever failed now, only this group has to wait.
            blamed = {0: news.failure or "", **blamed}
        reasons = {groups[number]: reason for number, reason in blamed.items() if number < len(groups)}
        self._placement.merge_failed(reasons, now_ms)
        return bool(reasons)


def _blamed(tries: Sequence[ServiceNews]) -> Mapping[int, str]:
    """The operations, by number, whose file groups are the cause of these failures, and why: those that were
    damaged in any try, and those that failed in each while others were done. One process or machine may die
    once or twice.
    """
    damaged = {found.number: found.reason for news in tries for found in news.failed if found.is_damaged}
    if len(tries) < TASK_TRIES_MAX or not all(news.done for news in tries):
        return damaged
    always = set.intersection(*({found.number for found in news.failed} for news in tries))
    last = {found.number: found.reason for found in tries[-1].failed if found.number in always}
    return {**last, **damaged}
