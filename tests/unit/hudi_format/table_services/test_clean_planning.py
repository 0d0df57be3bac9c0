"""What a clean deletes: nothing that a reader since the horizon, a plan or a savepoint needs; all else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.hudi_format.table_services.histories import GROUPS, Event, History, random_history, t
from tidemark.hudi_format.table_services.clean_planning import (
    CleanBounds,
    horizon,
    plan_data_clean,
    plan_index_clean,
    recheck_clean,
    superseded_groups,
)
from tidemark.hudi_format.table_services.operations import CleanPlan
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline


def worth_a_look(
    history: History, replaced: Mapping[tuple[str, str], str] | None = None
) -> dict[str, list[str]]:
    """The files of groups that may have superseded slices: others are not even sorted into slices."""
    found = {}
    for partition, names in history.files().items():
        groups = superseded_groups(names) | {file_id for path, file_id in replaced or () if path == partition}
        found[partition] = [name for name in names if name.lstrip(".").partition("_")[0] in groups]
    return found


def data_clean(
    history: History, bounds: CleanBounds, replaced: dict[tuple[str, str], str] | None = None, **more
) -> CleanPlan | None:
    view = history.view(replaced)
    files = worth_a_look(history, view.replaced)
    seen = more.pop("seen_at", view.timeline.completion_time)
    return plan_data_clean(
        view.every_slice(files), files, view.timeline, view.replaced, bounds, t(9_000), seen_at=seen, **more
    )


def index_clean(history: History, bounds: CleanBounds) -> CleanPlan | None:
    view, files = history.view(), worth_a_look(history)
    seen = view.timeline.completion_time
    return plan_index_clean(view.every_slice(files), files, view.timeline, bounds, t(9_000), seen_at=seen)


def deleted(plan: CleanPlan | None) -> set[tuple[str, str]]:
    return {(p, name) for p, names in plan.files.items() for name in names} if plan else set()


def everything(history: History) -> set[tuple[str, str]]:
    return {(partition, name) for partition, names in history.files().items() for name in names}


def read_since(history: History, first: int) -> set[tuple[str, str]]:
    """(partition, name) of all that readers open who list at any moment from ``first`` on."""
    return {
        (group[0], name)
        for group in GROUPS
        for moment in range(first, history.end + 1)
        for name in history.read_at(group, t(moment))
    }


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("plan", [data_clean, index_clean])
def test_a_clean_deletes_what_no_reader_since_the_horizon_opens_and_nothing_else(seed, plan):
    history = random_history(seed)
    for first in range(20, history.end, 61):
        found = plan(history, CleanBounds(horizon=t(first)))
        assert deleted(found) == everything(history) - read_since(history, first)


def compacted_twice() -> History:
    """Slices of all groups that began at 1, 100 and 200, each with a log file; seen at 2, 110, 210."""
    events = [Event(t(1), t(2), GROUPS, is_base=True)]
    for n in (100, 200):
        events += [Event(t(n - 50), t(n - 49), GROUPS), Event(t(n), t(n + 10), GROUPS, is_base=True)]
    return History([*events, Event(t(250), t(251), GROUPS)], 400)


def slices_gone(plan: CleanPlan | None, file_id: str) -> set[int]:
    """The beginnings of the slices whose base files go."""
    instants = {1: t(1), 100: t(100), 200: t(200)}
    names = {name for _, name in deleted(plan) if name.startswith(file_id)}
    return {n for n, instant in instants.items() if any(instant in name for name in names)}


def test_the_files_of_a_pending_plan_stay():
    history = compacted_twice()
    bounds = CleanBounds(horizon=t(300), plans={("p", "a-0"): t(150)})
    plan = data_clean(history, bounds)
    assert slices_gone(plan, "a-0") == {1}, "planned at 150, on top of the slice of 100"
    assert slices_gone(plan, "b-0") == {1, 100}


def test_a_slice_stays_that_readers_saw_longer_than_its_completion_times_say():
    """A coordinator died behind its decision, and its successor made the completed file late."""
    history = compacted_twice()
    late = {t(200): t(310)}
    completion = history.timeline().completion_time
    plan = data_clean(
        history, CleanBounds(horizon=t(300)), seen_at=lambda each: late.get(each) or completion(each)
    )
    assert slices_gone(plan, "b-0") == {1}


def test_what_a_savepoint_names_stays():
    history = compacted_twice()
    kept = {t(50): {"p": [history.events[0].name(("p", "a-0"))]}}
    plan = data_clean(history, CleanBounds(horizon=t(300), savepoints=kept))
    assert (slices_gone(plan, "a-0"), slices_gone(plan, "b-0")) == ({100}, {1, 100})
    assert plan.savepoints == (t(50),)


def test_the_index_keeps_the_newest_slice_from_before_the_oldest_savepoint_and_all_later_ones():
    history = compacted_twice()
    savepoints: dict[str, dict[str, list[str]]] = {t(260): {}, t(150): {}}
    plan = index_clean(history, CleanBounds(horizon=t(300), savepoints=savepoints))
    assert slices_gone(plan, "a-0") == {1}
    early = CleanBounds(horizon=t(300), savepoints={t(50): {}})
    assert index_clean(history, early) is None
    # The newest write, too, may get a savepoint: its slice stays, however long ago that was.
    newest = CleanBounds(horizon=t(300), last_write=t(150))
    assert slices_gone(index_clean(history, newest), "a-0") == {1}
    assert slices_gone(index_clean(history, CleanBounds(horizon=t(300), last_write=t(280))), "a-0") == {
        1,
        100,
    }


def test_replaced_groups_go_wholly_once_nobody_reads_them():
    history = compacted_twice()
    group = ("p", "a-0")
    for completed, whole in ((t(290), True), (t(301), False)):
        plan = data_clean(history, CleanBounds(horizon=t(300)), {group: completed})
        gone = {name for _, name in deleted(plan) if "a-0" in name}
        everything_of = {name for name in history.files()["p"] if "a-0" in name}
        assert gone == (everything_of if whole else set())


def test_replaced_groups_stay_while_a_plan_or_a_savepoint_names_them():
    history = compacted_twice()
    group = ("p", "a-0")
    planned = CleanBounds(horizon=t(300), plans={group: t(260)})
    named = CleanBounds(horizon=t(300), savepoints={t(260): {"p": [history.events[-1].name(group)]}})
    for bounds in (planned, named):
        plan = data_clean(history, bounds, {group: t(290)})
        assert not any("a-0" in name for _, name in deleted(plan))


def clean_after_a_replacecommit(
    horizon_at: int, gone: bool, pending: tuple[Instant, ...] = ()
) -> tuple[CleanPlan | None, set[str]]:
    """A clean of a table in which one group was replaced at 280, seen at 290, and the names of the group's
    files. ``gone``: they were deleted before.
    """
    history, group = compacted_twice(), ("p", "a-0")
    replacing = Instant(t(280), Action.REPLACE_COMMIT, State.COMPLETED, t(290))
    timeline = Timeline(tuple(sorted([*history.timeline().instants, replacing, *pending])))
    view, files = history.view({group: t(290)}), history.files()
    of_group = {name for name in files["p"] if "a-0" in name}
    if gone:
        files["p"] = {name: size for name, size in files["p"].items() if name not in of_group}
    plan = plan_data_clean(
        view.every_slice(files), files, timeline, view.replaced, CleanBounds(horizon=t(horizon_at)), t(9_000),
        seen_at=timeline.completion_time,
    )  # fmt: skip
    return plan, of_group


FIRST, REPLACING, SINCE = (t(1), "deltacommit"), (t(280), "replacecommit"), (t(250), "deltacommit")


@pytest.mark.parametrize(
    ("horizon_at", "retained"), [(300, REPLACING), (285, REPLACING), (265, REPLACING), (245, SINCE)]
)
def test_hudis_archival_keeps_a_replacecommit_whose_groups_are_there(horizon_at, retained):
    """It takes those before the named instant for cleaned, and those before the clean when none is named: a
    clean that takes a group itself deletes it only after it has completed.
    """
    plan, of_group = clean_after_a_replacecommit(horizon_at, gone=False)
    assert plan.retained == retained
    assert (of_group <= {name for _, name in deleted(plan)}) is (horizon_at == 300)


@pytest.mark.parametrize(("horizon_at", "retained"), [(300, REPLACING), (265, REPLACING)])
def test_a_later_clean_names_what_it_likes_once_the_groups_are_gone(horizon_at, retained):
    plan, _ = clean_after_a_replacecommit(horizon_at, gone=True)
    assert plan.retained == retained


def test_a_clean_of_another_engine_that_is_pending_may_have_deleted_what_the_list_still_names():
    pending = Instant(t(310), Action.CLEAN, State.INFLIGHT)
    plan, _ = clean_after_a_replacecommit(300, gone=True, pending=(pending,))
    assert plan.retained == REPLACING


def test_base_files_of_other_attempts_go_with_their_slice():
    history = compacted_twice()
    files = history.files()
    other = f"a-0_7-7-7_{t(1)}.parquet"
    files["p"][other] = 5
    view = history.view()
    plan = plan_data_clean(
        view.every_slice(files), files, view.timeline, {}, CleanBounds(horizon=t(300)), t(9_000),
        seen_at=view.timeline.completion_time,
    )  # fmt: skip
    assert ("p", other) in deleted(plan)
    assert ("p", f"a-0_0-0-0_{t(1)}.parquet") in deleted(plan)


def test_a_clean_that_is_cut_off_names_no_instant_to_retain():
    """Else Hudi's own clean would look only at partitions that were written since, and never at the rest."""
    history = compacted_twice()
    bounds = CleanBounds(horizon=t(245))
    whole = data_clean(history, bounds)
    assert whole.retained == (t(250), "deltacommit")
    cut = data_clean(history, bounds, files_max=5)
    assert (len(deleted(cut)), cut.retained) == (5, None)
    assert deleted(cut) < deleted(whole)


def test_a_clean_that_leaves_superseded_slices_names_no_instant_to_retain():
    history = compacted_twice()
    held = CleanBounds(horizon=t(245), plans={("p", "a-0"): t(150)})
    assert data_clean(history, held).retained is None
    pending = CleanBounds(horizon=t(245), first_pending=t(248))
    assert data_clean(history, pending).retained is None, "Hudi's bound: the first pending write"


def test_a_clean_of_a_table_that_was_not_written_since_names_the_last_write():
    """Else Hudi would make a savepoint of a write whose slices are deleted, and a restore to it lose rows."""
    history = compacted_twice()
    last = [each for each in history.timeline().completed() if each.action.is_write][-1]
    plan = data_clean(history, CleanBounds(horizon=t(300)))
    assert plan.retained == (last.requested, last.action.completed_word)


def test_the_horizon_is_the_oldest_of_what_is_read():
    pending = Timeline((Instant(t(40), Action.DELTA_COMMIT, State.INFLIGHT),))
    cleaning = Timeline((Instant(t(10), Action.CLEAN, State.REQUESTED),))
    assert horizon(t(90), t(70), None, [], ()) == t(70)
    assert horizon(t(60), t(70), None, [], ()) == t(60)
    assert horizon(t(90), t(70), t(50), [cleaning], ()) == t(50)
    assert horizon(t(90), t(70), t(50), [pending], ()) == t(40)
    assert horizon(t(90), t(70), t(50), [pending], (t(40),)) == t(50), "our own reads as of the open epoch"


def test_a_living_build_of_an_index_keeps_what_it_reads_and_its_counter_keeps_nothing():
    """A dead one's `0000…N` stays pending until somebody ends it: cleans do not wait for that."""
    build = Timeline((Instant("00000000000000005", Action.DELTA_COMMIT, State.INFLIGHT),))
    planned = Timeline((Instant(t(40), Action.INDEXING, State.INFLIGHT),))
    assert horizon(t(90), t(70), None, [planned, build], ()) == t(70)
    assert horizon(t(90), t(70), None, [planned, build], (), (t(40),)) == t(40)
    assert horizon(t(90), t(70), None, [planned, build], (), (t(80),)) == t(70)


def test_a_recheck_keeps_only_what_may_still_be_deleted():
    history = compacted_twice()
    plan = data_clean(history, CleanBounds(horizon=t(245)))
    assert plan is not None
    assert recheck_clean(plan, plan) == plan
    less = data_clean(history, CleanBounds(horizon=t(245), plans={("p", "a-0"): t(50)}))
    kept = recheck_clean(plan, less)
    assert deleted(kept) == deleted(less)
    assert (kept.instant, kept.retained) == (plan.instant, None)
    assert recheck_clean(plan, None) is None
    assert recheck_clean(plan, replace_files(plan, {"q": ("other",)})) is None


def replace_files(plan: CleanPlan, files: dict[str, tuple[str, ...]]) -> CleanPlan:
    return CleanPlan(plan.instant, plan.is_index, files, plan.last_completed)


def test_nothing_goes_before_the_first_compaction():
    history = replace(compacted_twice(), events=compacted_twice().events[:2])
    assert data_clean(history, CleanBounds(horizon=t(300))) is None


def test_groups_with_one_base_file_that_began_them_are_not_looked_at():
    names = [f"a-0_0-0-0_{t(5)}.parquet", f".a-0_{t(6)}.log.1_0-0-0", ".hoodie_partition_metadata"]
    assert superseded_groups(names) == set()
    assert superseded_groups([*names, f"a-0_0-0-0_{t(9)}.parquet"]) == {"a-0"}
    assert superseded_groups([*names, f".a-0_{t(4)}.log.1_0-0-0"]) == {"a-0"}, "log files alone, before it"


def test_a_clean_of_a_part_of_the_table_names_no_instant_to_retain():
    history = compacted_twice()
    assert data_clean(history, CleanBounds(horizon=t(245)), is_whole_table=False).retained is None
