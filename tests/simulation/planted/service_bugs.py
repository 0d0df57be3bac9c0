"""Bugs in table services: the counterexamples that a naive design hits (docs/simulation.md has which)."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.simulation.planted.mutant import Ground, planted
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services import archivals, compactions, steps
from tidemark.commit_coordinator.table_services.compactions import CompactData, CompactIndex
from tidemark.commit_coordinator.table_services.handler import DecidedAction, LockedStep
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.table_services import compaction_planning
from tidemark.hudi_format.table_services.operations import CompactionPlan, decode_plan
from tidemark.hudi_format.table_services.records import requested_compaction
from tidemark.hudi_format.timeline import Action
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


@planted("G2")
def index_compacted_shard_by_shard(ground: Ground) -> None:
    """All file groups of the metadata table are compacted at once, and no instant leaves its timeline whose
    log files are in a current slice. Here one group is compacted at a time, and the newest compaction bounds
    archival: Hudi drops log blocks of instants that are on no timeline.
    """
    real = compaction_planning.plan_index_compaction

    def plan(*args: Any) -> Any:
        found = real(*args)
        if not isinstance(found, CompactionPlan):
            return found
        return msgspec.structs.replace(found, operations=found.operations[-1:])

    ground.replace(compactions, "plan_index_compaction", plan)
    ground.replace(compaction_planning, "plan_index_compaction", plan)
    ground.replace(archivals, "_in_slices", lambda *_: set())


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
