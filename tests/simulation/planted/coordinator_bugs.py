"""Bugs in planning, deciding and committing epochs, and in who may still write."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from testing.memory_storage import InMemoryStorage
from tests.simulation.planted.mutant import Ground, planted
from tidemark.commit_coordinator import coordinator as coordinator_module
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff
from tidemark.commit_coordinator.commit import (
    attempt_effects,
    commit_effects,
    commit_metadata,
    served_table,
    timeline_look,
    unfinished_index,
)
from tidemark.commit_coordinator.commit.context import Context, Report
from tidemark.commit_coordinator.commit.kept_indexes import KeptIndexes
from tidemark.commit_coordinator.commit.timeline_look import TimelineLook
from tidemark.commit_coordinator.domain.actions import Decide, Finish, Plan
from tidemark.epoch_protocol.entries import EpochCommitted, EpochPlanned
from tidemark.hudi_format import validation
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import FileContent, Storage, parent_of
from tidemark.hudi_format.timeline import Action, Instant


@planted("G1", "G2", "G5")
def written_before_its_predecessor_is_committed(ground: Ground) -> None:
    """4, Plan: an epoch is planned when its predecessor is committed, and written as of the newest completed
    instant. Here it is written as of the plan before, as if its predecessor were still on the way.
    """
    real = attempt_effects._planned
    known: list[str] = ["0"]

    def plan(
        context: Context, action: Plan, instant: str | None, as_of: str, schema: str, *more: KeptIndexes
    ) -> EpochPlanned:
        before, after = known[0], as_of if instant is not None else known[0]
        known[0] = after
        return real(context, action, instant, before, schema, *more)

    ground.replace(attempt_effects, "_planned", plan)


@planted("G6")
def epoch_called_committed_before_it_is(ground: Ground) -> None:
    """4, Commit, step 5: `EpochCommitted` comes last. Here it comes before both commits: the next epoch may
    be planned, entries be promoted, and a successor does not finish what it takes for done.
    """
    real = commit_effects.finish

    def finish(context: Context, action: Finish) -> Report:
        planned, completion = action.planned, action.decided.data_completion
        origin = commit_metadata.origin(context, planned)
        now_ms, append = context.clock.now_ms(), context.log.append
        append(
            EpochCommitted(context.term, planned.epoch, planned.attempt, planned.instant, completion, now_ms)
        )
        with (
            patch.object(commit_metadata, "origin", lambda *_: origin),
            patch.object(context.log, "append", lambda *_: None),
        ):
            return real(context, action)

    ground.replace(coordinator_module, "finish", finish)


@planted("G1", "G2", "G5")
def completion_times_chosen_before_the_lock(ground: Ground) -> None:
    """4, Commit, step 1: both completion times are chosen under the lock, above everything on both timelines.
    Here they are chosen when the attempt is opened: what other engines complete meanwhile comes after them.

    Alone it changes nothing: what is asked again before the decision is carried out finds the later instant,
    and takes it back. So this takes that away, too.
    """
    times: dict[str, list[str]] = {}
    real_open, real_decide = attempt_effects.open_planned, commit_effects.decide

    def open_planned(context: Context, action: Any) -> str:
        token = real_open(context, action)
        times[action.planned.instant] = [context.instants.next(), context.instants.next()]
        return token

    def decide(context: Context, action: Decide, report: Report) -> None:
        chosen = times.get(str(action.planned.instant))
        if not chosen:
            real_decide(context, action, report)
            return
        with patch.object(context.instants, "next", lambda: chosen.pop(0)):
            real_decide(context, action, report)

    ground.replace(attempt_effects, "open_planned", open_planned)
    ground.replace(coordinator_module, "open_planned", open_planned)
    ground.replace(coordinator_module, "decide", decide)
    ground.replace(commit_effects, "_check_standing", lambda *args: False)


@planted("G1", "G2", "G4", "G5", "G6")
def not_pending_counts_as_valid(ground: Ground) -> None:
    """3.4: an MDT deltacommit is taken only if its instant is completed in the data listing made before.
    Here, as in Hudi's own rule, it is enough that it is not pending there: an instant that was requested
    after the data listing and completed in the MDT before its own listing is taken for committed. Where that
    leads to rows for a file group that has no files, the writer refuses, and the epoch never ends (G6).

    Alone it is healed: such an instant is completed, or rolled back, which is foreign: all caches are filled
    anew, and all is tagged anew. So this takes that away, too.
    """
    real_harmless = timeline_look._is_harmless

    def is_harmless(storage: Storage, instant: Instant, ours: set[str | None]) -> bool:
        return instant.action is Action.ROLLBACK or real_harmless(storage, instant, ours)

    def is_valid(self: InstantValidity, instant: str) -> bool:
        found = self.data.find(instant)
        return self.metadata.is_committed(instant) and (found is None or found.is_completed)

    ground.replace(timeline_look, "_is_harmless", is_harmless)
    ground.replace(InstantValidity, "is_valid", is_valid)


def _publish_without_staging(
    self: InMemoryStorage, staging_dir: str, path: str, data: FileContent, overwrite: bool = False
) -> None:
    self.make_dir(parent_of(path))
    if overwrite:
        self.replace(path, data)
    else:
        self._put_new(path, data)


@planted("G1", "G4", "G5")
def created_instead_of_linked(ground: Ground) -> None:
    """4, Write and Commit: files, requested, inflight and completed files appear by `link()` out of a staging
    folder, which a successor or a void has renamed away. Here they are simply created: a coordinator or a
    writer that thaws goes on where it was.
    """
    ground.replace(InMemoryStorage, "publish", _publish_without_staging)


@planted("G4")
def data_committed_before_metadata(ground: Ground) -> None:
    """G4: the MDT is committed first. Here the data commit comes first: readers see rows that the index and
    the `files` partition do not know.
    """
    real_metadata, real_data = commit_metadata.metadata_commit, commit_effects._data_commit
    waiting: list[Any] = []

    def metadata_commit(*args: Any) -> list[Any]:
        waiting.append(args)
        return []

    def data_commit(*args: Any) -> None:
        real_data(*args)
        if waiting:
            real_metadata(*waiting.pop())

    ground.replace(commit_effects, "metadata_commit", metadata_commit)
    ground.replace(commit_effects, "_data_commit", data_commit)


@planted("G1", "G5")
def report_for_another_attempt_taken(ground: Ground) -> None:
    """4, Write: a report names epoch, attempt and instant, and any other attempt's is refused. Here whatever
    report comes is taken for the open attempt's.
    """

    def report(self: AttemptHandoff, epoch: int, attempt: int, instant: str, found: Report) -> bool:
        with self._changed:
            if self._open is None:
                return False
            planned = self._open.planned
            self._report = ((planned.epoch, planned.attempt), found)
            return True

    ground.replace(AttemptHandoff, "report", report)


@planted("G1", "G2")
def no_rewind_after_a_foreign_commit(ground: Ground) -> None:
    """4, Void and rewind: a completed instant of another writer voids the attempt and rewinds every lane.
    Here it is not looked for: tags that were made without it are committed.
    """
    nothing = TimelineLook("", (), (), (), (), False, None, False)
    for module in (attempt_effects, commit_effects):
        ground.replace(module, "refuse_surprises", lambda *args: nothing)


@planted("G5")
def voided_attempt_stays_open(ground: Ground) -> None:
    """4, Void: the attempt is closed before the instant is rolled back. Here it stays open: a writer that was
    held up publishes a file of an instant that is no more.
    """
    ground.replace(attempt_effects, "_close", lambda *args: None)


@planted("G1", "G5", "G6")
def void_forgets_the_rollback(ground: Ground) -> None:
    """4, Void: the instant is rolled back, files go by markers. Here the attempt is only forgotten."""
    ground.replace(attempt_effects, "_roll_back", lambda *args: None)


@planted("G5")
def committed_while_an_index_is_built(ground: Ground) -> None:
    """docs/adr/0018-secondary-indexes.md: no epoch completes while another engine has a secondary index
    unfinished. Here it does, as if the index were none of ours before the table lists it.
    """
    ground.replace(served_table, "check_still_servable", without_unfinished)


def without_unfinished(storage: Any, accepted: Any, changed: Any, **_: Any) -> Any:
    """As `check_still_servable`, for which an unfinished index is never a reason."""
    return validation.check_still_servable(storage, accepted, changed, unfinished=True)


@planted("G5")
def index_taken_out_while_it_is_built(ground: Ground) -> None:
    """The same, What a dead builder left: an index is taken out when nobody can be building it any more. Here
    it is at once, so a builder that lives lists an index without a definition.
    """
    ground.replace(unfinished_index, "NOBODY_BUILDS_S", 0)
    ground.replace(unfinished_index, "living_builds", lambda *_: ())


@planted("G6")
def dead_build_of_another_kind_is_awaited(ground: Ground) -> None:
    """The same, What a dead builder left: an index of any kind is taken out. Here secondary ones alone are,
    and the stream waits for a dead indexer's bloom filters for ever.
    """
    real = unfinished_index._take_out_dead

    def take_out_dead(context: Any, timelines: Any, index: str) -> bool:
        return index.startswith("secondary_index_") and real(context, timelines, index)

    ground.replace(unfinished_index, "_take_out_dead", take_out_dead)
