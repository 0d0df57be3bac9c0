"""What operators see of table services: by kind what is open, what ended last, why nothing is due.

Made by the loop for each view, so it reads no file but an action's plan, once. What costs a walk over all
file slices is kept for two seconds, and what costs a listing of the timelines for five.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.domain.service_actions import SeenServices
from tidemark.commit_coordinator.domain.slice_stats import SliceStats, TableSlices
from tidemark.commit_coordinator.table_services.held_back import held_back
from tidemark.commit_coordinator.table_services.pressure import AHEAD_MS
from tidemark.commit_coordinator.table_services.runner import EndedAction, ServiceRunner
from tidemark.config import values
from tidemark.config.effective import shown as in_file
from tidemark.config.table_services_model import ServicesRun, TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServiceOutcome, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.table_services.triggers import DataCompactionRule
from tidemark.hudi_format.timeline import Action
from tidemark.table_status.services import (
    EARLIER,
    EndedServiceAction,
    OpenServiceAction,
    OwnServices,
    ServiceFailures,
    ServiceKindState,
)

_SLICES_MS: Final = 2_000
_HELD_MS: Final = 5_000
_UNTAKEN_MS: Final = 60_000
_BEHIND: Final = 2
"""Compaction is behind when a slice has so many times what triggers it."""
_BEHIND_SHOWN: Final = 3
_FAILED_SHOWN: Final = 3
_ON_TIMELINE: Final = {
    ServiceKind.COMPACT_DATA: (True, Action.COMPACTION),
    ServiceKind.COMPACT_INDEX: (False, Action.COMPACTION),
    ServiceKind.CLEAN_DATA: (True, Action.CLEAN),
    ServiceKind.CLEAN_INDEX: (False, Action.CLEAN),
}
"""Whether on the data table's timeline, and as what, an action of the kind completes."""
_CLEANS: Final = (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX)
LeftOut: TypeAlias = Callable[[int], Iterable[str]]
"""What a kind leaves out for now, because it failed, as texts. It is given the time (Unix epoch)."""
NOTHING_LEFT_OUT: Final[Mapping[ServiceKind, LeftOut]] = {}
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class PlanStats:
    """What a plan names: file groups, files of a clean, or instants; and bytes where it says them."""

    groups: int = 0
    bytes: int = 0


def plan_stats(document: bytes) -> PlanStats:
    """The stats of an action's plan, whatever its kind."""
    plan = msgspec.json.decode(document)
    if not isinstance(plan, dict):
        return PlanStats()
    if "operations" in plan:
        gone = set(plan.get("dropped", ()))
        kept = [operation for number, operation in enumerate(plan["operations"]) if number not in gone]
        return PlanStats(len(kept), sum(outcome["log_bytes"] + outcome["base_bytes"] for outcome in kept))
    if isinstance(plan.get("files"), dict):
        return PlanStats(sum(map(len, plan["files"].values())))
    return PlanStats(len(plan.get("instants", ())))


@dataclass(frozen=True)
class _OfSlices:
    """What the file slices say: (share of its trigger that the neediest group has reached, most log files of
    a shard, log bytes of the index as a share of its base bytes), and which groups are behind. ``held``: how
    many groups another engine planned to rewrite; these are left out of the rest, and so are those whose
    merges ``failed`` (what is said of them). ``are_all_left_out``: there is no other one with log files.
    """

    data_reached: float = 0.0
    index_logs: int = 0
    index_ratio: float = 0.0
    behind: tuple[str, ...] = ()
    held: int = 0
    failed: str = ""
    are_all_left_out: bool = False


class ShownServices:
    """Used by the loop alone."""

    def __init__(
        self,
        runner: ServiceRunner,
        config: TableServicesConfig,
        placement: Placement,
        left_out: Mapping[ServiceKind, LeftOut] = NOTHING_LEFT_OUT,
    ) -> None:
        """``left_out``: of kinds that leave something out by themselves."""
        self._runner, self._left_out = runner, left_out
        self._config = config
        self._placement = placement
        self._plans: dict[int, PlanStats] = {}
        self._slices = _OfSlices()
        self._slices_at_ms = -_SLICES_MS
        self._held: dict[ServiceKind, list[str]] = {}
        self._held_at_ms = -_HELD_MS
        self._earlier: dict[ServiceKind, EndedServiceAction] = {}

    def of(self, state: FoldState, seen: SeenServices, now_ms: int) -> OwnServices:
        """The services at this moment."""
        paused = OwnServices(paused=state.services_paused, reason=state.services_pause_reason)
        if not self._runner.rules.enabled:
            return paused
        if now_ms - self._slices_at_ms >= _SLICES_MS:
            self._slices_at_ms, self._slices = now_ms, self._look(self._placement.snapshot(), now_ms)
        if now_ms - self._held_at_ms >= _HELD_MS:
            self._held_at_ms = now_ms
            self._hold(state, now_ms)
        kinds = [kind for kind in ServiceKind if kind in self._runner.handlers]
        shown = [self._kind(kind, state, seen, now_ms) for kind in kinds]
        self._forget(state)
        return msgspec.structs.replace(
            paused,
            enabled=True,
            kinds=shown,
            behind=self._behind(shown, now_ms),
            backpressure=self._runner.backpressure.level,
        )

    def _behind(self, kinds: Sequence[ServiceKindState], now_ms: int) -> list[str]:
        words = self._runner.backpressure.words
        return [*([words] if words else []), *self._untaken(kinds, now_ms), *self._slices.behind]

    def _untaken(self, kinds: Sequence[ServiceKindState], now_ms: int) -> Iterator[str]:
        """Actions whose tasks nobody has asked for, because no worker runs or can reach us."""
        serve = self._config.run is ServicesRun.SEPARATE
        start = "`tidemark services serve`" if serve else "a writer"
        for state in kinds:
            action = state.open
            if action is None or action.step != "planned" or action.worker or action.groups_done:
                continue
            if not self._runner.handlers[ServiceKind(state.kind)].has_tasks:
                continue
            if (waits_ms := now_ms - action.planned_ms) > _UNTAKEN_MS:
                yield (f"nobody has taken the tasks of {state.kind} for {waits_ms // 1_000} s: start {start}")

    def _kind(self, kind: ServiceKind, state: FoldState, seen: SeenServices, now_ms: int) -> ServiceKindState:
        held, ended, known = state.services.get(kind), self._runner.ended.get(kind), seen.kind(kind)
        open_action = None if held is None else self._open(held, seen)
        failures = None
        if held is not None and (noted := seen.action(held.planned.service)).failures > 0:
            failures = ServiceFailures(noted.failures, noted.problem, noted.retry_at_ms)
        elif known.failures > 0:
            failures = ServiceFailures(known.failures, known.problem, known.not_before_ms)
        due = "" if held is not None else seen.due.get(kind, "")
        idle = held is None and not due
        return ServiceKindState(
            kind=kind,
            due=due,
            not_due=self._why_not(kind, state, seen, now_ms) if idle else "",
            held_back=[
                *_ahead(held, seen, now_ms),
                *self._held.get(kind, []),
                *(self._left_out[kind](now_ms) if kind in self._left_out else ()),
            ],
            open=open_action,
            last=self._earlier.get(kind) if ended is None else self._ended(ended),
            failures=failures,
        )

    def _open(self, held: OpenService, seen: SeenServices) -> OpenServiceAction:
        planned, noted = held.planned, seen.action(held.planned.service)
        stats, progress = self._stats(planned), self._runner.progress_of(planned.service)
        step = "planned" if held.decided is None else "sweeping" if noted.completed else "decided"
        done = stats.groups if noted.reported or held.decided is not None else progress.done
        return OpenServiceAction(
            number=planned.service,
            instant=planned.instant,
            step=step,
            planned_ms=planned.planned_ms,
            decided_ms=held.decided.decided_ms if held.decided is not None else None,
            groups=stats.groups,
            groups_done=done,
            bytes=stats.bytes,
            worker=progress.worker,
        )

    def _ended(self, ended: EndedAction) -> EndedServiceAction:
        planned, stats = ended.planned, self._stats(ended.planned)
        outcome = ServiceOutcome.BY_OTHER.value if ended.by_other else ServiceOutcome.DONE.value
        return EndedServiceAction(
            number=planned.service,
            instant=planned.instant,
            outcome="voided" if ended.reason else outcome,
            planned_ms=planned.planned_ms,
            ended_ms=ended.ended_ms,
            groups=stats.groups,
            bytes=stats.bytes,
            reason=ended.reason,
        )

    def _stats(self, planned: ServicePlanned) -> PlanStats:
        known = self._plans.get(planned.service)
        if known is None:
            try:
                known = plan_stats(self._runner.plan_of(planned))
            except (OSError, HudiFormatError, msgspec.DecodeError) as error:
                _log.debug("the plan of service action %d cannot be read: %s", planned.service, error)
                known = PlanStats()
            self._plans[planned.service] = known
        return known

    def _forget(self, state: FoldState) -> None:
        kept = {held.planned.service for held in state.services.values()}
        kept |= {ended.planned.service for ended in self._runner.ended.values()}
        for number in self._plans.keys() - kept:
            del self._plans[number]

    def _why_not(self, kind: ServiceKind, state: FoldState, seen: SeenServices, now_ms: int) -> str:
        if state.services_paused:
            return "services are paused"
        config = self._config
        section = "clean" if kind in _CLEANS else kind.value.replace("-", "_")
        if not getattr(config, section).enabled:
            return f"table_services.{section}.enabled is false; `tidemark services run {kind}` runs it once"
        ended_ms = seen.kind(kind).ended_ms
        if kind is ServiceKind.COMPACT_DATA:
            if (wait_ms := ended_ms + config.compact_data.min_interval_ms - now_ms) > 0:
                return _soon(wait_ms)
            if self._slices.are_all_left_out:
                return "all file groups with log files are left out"
            reached = self._slices.data_reached
            return f"the file group that needs it most has reached {reached:.0%} of what triggers it"
        if kind is ServiceKind.COMPACT_INDEX:
            rule = config.compact_index
            if (wait_ms := ended_ms + rule.min_interval_ms - now_ms) > 0:
                return _soon(wait_ms)
            return (
                f"most log files of a shard: {self._slices.index_logs} of {rule.log_files}; their bytes are "
                f"{self._slices.index_ratio:.0%} of the base files', of {rule.log_ratio:.0%}, which counts "
                f"from {in_file(values.size_bytes, rule.ratio_from_bytes)} on"
            )
        if kind is ServiceKind.ARCHIVE:
            return f"a timeline is archived when it has more than {config.archive.max} write instants"
        interval_ms = config.clean.interval_ms if kind in _CLEANS else config.rollback.interval_ms
        since_ms = max(ended_ms, seen.kind(kind).not_before_ms - interval_ms)
        wait_s = max(since_ms + interval_ms - now_ms, 0) // 1_000
        found = ["nothing was found to do"] if seen.kind(kind).found_nothing or not wait_s else []
        return "; ".join([*found, *([f"the next look is in {wait_s} s"] if wait_s else [])])

    def _hold(self, state: FoldState, now_ms: int) -> None:
        """What holds services back and what ended earlier, by the timelines; kept as it was while they cannot
        be listed.
        """
        own = {held.planned.instant for held in state.services.values()}
        own |= {attempt.instant for attempt in (state.planned, *state.voided) if attempt and attempt.instant}
        try:
            timelines = self._runner.timelines()
            self._held = held_back(
                timelines,
                self._config,
                own,
                now_ms,
                index_build_ms=self._runner.index_build_ms,
                left_groups=self._slices.held,
            )
            if self._slices.failed:
                self._held.setdefault(ServiceKind.COMPACT_DATA, []).append(self._slices.failed)
            self._earlier = dict(_earlier(timelines, self._runner.archived_ms()))
        except (OSError, HudiFormatError) as error:
            _log.debug("what holds table services back is not known: %s", error)

    def _look(self, slices: TableSlices, now_ms: int) -> _OfSlices:
        data, index = self._config.compact_data, self._config.compact_index
        rule = DataCompactionRule(
            log_ratio=data.log_ratio,
            log_bytes=data.log_bytes,
            log_files=data.log_files,
            log_age_ms=data.log_age_ms,
        )
        left_out = slices.left_out
        ours = [file_slice for file_slice in slices.data if file_slice.group not in left_out]
        base = sum(file_slice.base_bytes for file_slice in slices.index)
        logs = sum(file_slice.log_bytes for file_slice in slices.index)
        return _OfSlices(
            data_reached=max((rule.score(file_slice, now_ms) for file_slice in ours), default=0.0),
            index_logs=max((file_slice.log_count for file_slice in slices.index), default=0),
            index_ratio=logs / base if base else 0.0,
            behind=(
                *_behind("", ours, data.log_files),
                *_behind("index ", slices.index, index.log_files),
            ),
            held=len(slices.held),
            failed=_failed(slices, now_ms),
            are_all_left_out=bool(left_out) and not any(file_slice.log_count for file_slice in ours),
        )


def _failed(slices: TableSlices, now_ms: int) -> str:
    """What is said of file groups whose merges failed, those that are tried again first; "" where there are
    none.
    """
    if not slices.failed:
        return ""
    named = sorted(slices.failed.items(), key=lambda failed: (failed[1].until_ms, failed[0]))
    texts = [
        f"{partition}/{file_id} ({failed.reason}; next try in {max(failed.until_ms - now_ms, 0) // 1_000} s)"
        for (partition, file_id), failed in named[:_FAILED_SHOWN]
    ]
    count = len(named)
    who = (
        "1 file group is left out, because it"
        if count == 1
        else f"{count} file groups are left out, because they"
    )
    more = f", and {count - _FAILED_SHOWN} more" if count > _FAILED_SHOWN else ""
    return f"{who} could not be merged: {', '.join(texts)}{more}"


def _earlier(
    timelines: Timelines, archived_ms: int | None
) -> Iterator[tuple[ServiceKind, EndedServiceAction]]:
    """What the timelines say of the last action of a kind. A rollback may be an epoch's: it is left out."""
    for kind, (of_data, action) in _ON_TIMELINE.items():
        timeline = timelines.data if of_data else timelines.metadata
        last = max(timeline.completed(action), key=lambda instant: str(instant.completion), default=None)
        if last is not None:
            planned_ms, ended_ms = instant_to_ms(last.requested), instant_to_ms(str(last.completion))
            yield (
                kind,
                EndedServiceAction(
                    number=0,
                    instant=last.requested,
                    outcome=EARLIER,
                    planned_ms=planned_ms,
                    ended_ms=ended_ms,
                ),
            )
    if archived_ms is not None:
        ended = EndedServiceAction(
            number=0, instant="", outcome=EARLIER, planned_ms=archived_ms, ended_ms=archived_ms
        )
        yield ServiceKind.ARCHIVE, ended


def _ahead(held: OpenService | None, seen: SeenServices, now_ms: int) -> Iterator[str]:
    """An action whose instant is ahead of our clock: it is decided when the clock has passed it."""
    if held is None or held.decided is not None:
        return
    wait_ms = seen.action(held.planned.service).decide_at_ms - now_ms
    if wait_ms > AHEAD_MS:
        yield (
            f"action {held.planned.service} waits {-(-wait_ms // 1_000)} s for the clock: its instant comes "
            "after one of a clock that is ahead: another engine's, or ours at that time"
        )


def _soon(wait_ms: int) -> str:
    return f"the last one ended a moment ago; not before {-(-wait_ms // 1_000)} s are over"


def _behind(what: str, slices: Sequence[SliceStats], log_files: int) -> Iterator[str]:
    long = sorted(
        (file_slice for file_slice in slices if file_slice.log_count >= _BEHIND * log_files),
        key=lambda file_slice: -file_slice.log_count,
    )
    for stats in long[:_BEHIND_SHOWN]:
        where = f"{stats.partition_path} {stats.file_id}".strip()
        logs = stats.log_count
        yield f"{what}file group {where} has {logs} log files, its compaction is due at {log_files}"
    if len(long) > _BEHIND_SHOWN:
        more = len(long) - _BEHIND_SHOWN
        yield f"{more} more {what}file groups have at least {_BEHIND * log_files} log files"
