"""Bugs in table services: the counterexamples that a naive design hits (docs/simulation.md has which)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from tests.simulation.planted.mutant import Ground, planted
from tidemark.commit_coordinator.commit import attempt_effects
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services import archivals, cleans, compactions, steps
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import DecidedAction, LockedStep
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.service_entries import ServiceVoided
from tidemark.hudi_format.commit.heartbeat import heartbeat_path
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.table_services import archive_planning, compaction_planning
from tidemark.hudi_format.table_services.clean_planning import CleanBounds
from tidemark.hudi_format.table_services.operations import CompactionPlan, decode_plan, encode_plan
from tidemark.hudi_format.table_services.records import requested_compaction
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.service_records import encode_compaction_plan


def _not_asked_again(ground: Ground) -> None:
    """Whatever was planned is committed."""
    for handler in (CompactData, CompactIndex):
        ground.replace(handler, "recheck", lambda _self, _step, _planned, plan: plan)


@planted("G1", "G2", "G4", "G5")
def compaction_planned_on_the_timeline(ground: Ground) -> None:
    """Rule A: nothing of an action is on the table before it is decided. Here a compaction's plan is on its
    timeline at once: another engine carries it out while our tasks run, and both complete it.

    Alone it does no harm: what is asked again before the decision and before the commit finds the other
    engine's. So this takes that away, too.
    """
    for handler in (CompactData, CompactIndex):
        real = handler.plan

        def plan(self: Any, step: LockedStep, instant: str, real: Any = real) -> Any:
            document = real(self, step, instant)
            if isinstance(document, bytes):
                publishing, root = step.context.publishing, self.timeline
                content = encode_compaction_plan(requested_compaction(decode_plan(document, "plan")))
                requested = create_requested(publishing, instant, Action.COMPACTION, content, root=root)
                create_inflight(publishing, requested, root=root)
            return document

        ground.replace(handler, "plan", plan)
    _not_asked_again(ground)
    ground.replace(steps, "taken_instant", lambda *_: None)
    ground.replace(steps, "completion_of_instant", lambda *_: None)


@planted("G5")
def index_compaction_beats(ground: Ground) -> None:
    """Services have no heartbeats. Here a compaction of the metadata table has one, so that nobody else takes
    its plan: until it is two minutes old every write of Spark fails.
    """
    real = CompactIndex.plan

    def plan(self: CompactIndex, step: LockedStep, instant: str) -> Any:
        document = real(self, step, instant)
        if isinstance(document, bytes):
            step.context.publishing.put_pending(heartbeat_path(instant, METADATA_TABLE_ROOT), b"")
        return document

    ground.replace(CompactIndex, "plan", plan)


@planted("G1", "G2", "G4", "G5")
def base_files_before_the_requested_file(ground: Ground) -> None:
    """A base file of an instant that is on no timeline hides all later log files of its group from Hudi's
    readers. Here the base files come first, and only then the instant.
    """
    real = compactions._Compaction.commit

    def commit(self: Any, step: LockedStep, action: DecidedAction) -> None:
        merged = self._merged(action)
        for outcome in merged.outcomes:
            step.context.publishing.publish([action.tickets[merged.path(outcome)]], step.lease())
            step.context.hit(CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE)
        real(self, step, action)

    ground.replace(compactions._Compaction, "commit", commit)


@planted("G1", "G2", "G4", "G5")
def file_of_a_dead_executor_stays(ground: Ground) -> None:
    """Base files of the instant that are not ours go before ours come, and with ours when the action is taken
    back. Here they stay: an executor of another engine that died left one that is cut off.
    """
    ground.replace(compactions, "_delete_other_outputs", lambda *_: None)


@planted("G1")
def fresh_instant_at_commit(ground: Ground) -> None:
    """The requested time is that of the plan. Here it is chosen after the files were: what completed in
    between lies below the base file, and is lost.
    """
    real = CompactData.plan
    chosen: list[CompactionPlan] = []

    def plan(self: CompactData, step: LockedStep, instant: str) -> Any:
        if not chosen:
            document = real(self, step, instant)
            self._not_before_ms = 0
            if isinstance(document, bytes):
                chosen.append(decode_plan(document, "plan"))
            return None
        return encode_plan(msgspec.structs.replace(chosen.pop(), instant=instant))

    ground.replace(CompactData, "plan", plan)
    _not_asked_again(ground)


@planted("G1")
def log_files_by_requested_time(ground: Ground) -> None:
    """A log file belongs to the slice by the time at which its instant completed. Here by the time at
    which it was requested: an epoch that began before a compaction and completed after it is in no slice
    from then on.
    """
    real = compaction_planning.slices_before

    def slices_before(*args: Any) -> Any:
        return [
            replace(each, log_files=tuple(log for log in each.log_files if _instant(log) > each.base_instant))
            for each in real(*args)
        ]

    for module in (compaction_planning, compactions):
        ground.replace(module, "slices_before", slices_before)


def _instant(log_file: str) -> str:
    name = LogFileName.parse(log_file)
    assert name is not None
    return name.instant


@planted("G2")
def index_compacted_shard_by_shard(ground: Ground) -> None:
    """All file groups of the metadata table are compacted at once, and no instant leaves its timeline whose
    log files are in a current slice. Here one shard is compacted at a time, and the newest compaction bounds
    archival: Hudi drops log blocks of instants that are on no timeline.
    """
    real = compaction_planning.plan_index_compaction

    def plan(*args: Any) -> Any:
        found = real(*args)
        if not isinstance(found, CompactionPlan):
            return found
        shards = [each for each in found.operations if each.partition == "record_index"]
        return msgspec.structs.replace(found, operations=tuple(shards[-1:])) if shards else None

    ground.replace(compactions, "plan_index_compaction", plan)
    ground.replace(compaction_planning, "plan_index_compaction", plan)
    ground.replace(archivals, "in_slices", lambda *_: set())


@planted("G1", "G4")
def committed_below_the_start(ground: Ground) -> None:
    """Rule C: an action whose instant is below the timeline's start by now is void. Here it is committed: the
    start moves back, and what was archived in between counts as not committed.
    """
    ground.replace(steps, "out_of_timeline", lambda *_: None)


@planted("G1", "G4")
def newest_slices_alone_stay(ground: Ground) -> None:
    """Who began to read a while ago keeps its files. Here a clean leaves the newest slices alone."""
    bounds = CleanBounds(horizon="99991231235959999")
    ground.replace(cleans._Clean, "_bounds", lambda *_: bounds)


@planted("G5")
def partitions_left_out_are_not_named(ground: Ground) -> None:
    """A plan that leaves file groups out names their partitions. Here it does not: Hudi's incremental planner
    looks at what was written since, and never at those again.
    """
    real = compaction_planning.plan_data_compaction

    def plan(*args: Any, **named: Any) -> Any:
        found = real(*args, **named)
        return None if found is None else msgspec.structs.replace(found, missing_partitions=())

    ground.replace(compactions, "plan_data_compaction", plan)


@planted("G4")
def archived_before_the_next_compaction(ground: Ground) -> None:
    """A write that was open when a compaction was planned is archived after the next compaction of its file
    groups. Here it need not be behind it: readers without the archive look for its rows before the first one.
    """
    ground.replace(archive_planning, "_behind", lambda *_: None)


@planted("G2")
def newest_index_compaction_archived(ground: Ground) -> None:
    """The newest compaction of the metadata table stays on its timeline, for itself and for restores. Here it
    is archived like the rest: the base files that it made count no more once an index is added.
    """

    class Limit(archive_planning._Limit):
        def at(self, time: str | None, reason: str) -> None:
            kept = "the newest compaction", "the data table's timeline", archive_planning.BASE_IN_USE
            if reason not in kept:
                super().at(time, reason)

    ground.replace(archive_planning, "_Limit", Limit)


@planted("G6")
def rewind_forgets_services(ground: Ground) -> None:
    """A rewind leaves service actions alone. Here the fold forgets them: what is planned or decided is ended
    by nobody.
    """
    real = Fold._rewind

    def rewind(self: Fold, entry: Any) -> Verdict:
        verdict = real(self, entry)
        if verdict is Verdict.APPLIED:
            self.state.services.clear()
        return verdict

    ground.replace(Fold, "_rewind", rewind)


@planted("G7")
def rewind_voids_services(ground: Ground) -> None:
    """A rewind leaves service actions alone: it moves no file. Here it voids what is not decided, as it does
    an attempt: merges are done in vain, and where one rewind follows on another no compaction ever ends well.
    """
    real = attempt_effects._rewound

    def rewound(context: Context, reason: str, own_instant: str | None) -> list[Any]:
        held = context.fold().state.services.values()
        undecided = [each.planned.service for each in held if each.decided is None]
        voids = [ServiceVoided(context.term, number, reason) for number in undecided]
        return [*real(context, reason, own_instant), *voids]

    ground.replace(attempt_effects, "_rewound", rewound)
