"""Which file groups a compaction takes, what it merges, and when a plan holds no more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from tests.unit.hudi_format.table_services.histories import GROUPS, Event, History, random_history, t
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.table_services.compaction_planning import (
    NotNow,
    SizedFiles,
    plan_data_compaction,
    plan_index_compaction,
    recheck_data_compaction,
    recheck_index_compaction,
    slices_before,
)
from tidemark.hudi_format.table_services.operations import CompactionPlan
from tidemark.hudi_format.table_services.triggers import DataCompactionRule
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline

EVERY_LOG = DataCompactionRule(log_files=1)


def plan_of(
    history: History,
    instant: str,
    rule: DataCompactionRule = EVERY_LOG,
    *,
    view: TableView | None = None,
    files: SizedFiles | None = None,
    unlisted: Collection[str] = (),
) -> CompactionPlan | None:
    view = view or history.view()
    files = files or history.files()
    slices = slices_before(instant, view, files)
    return plan_data_compaction(view, slices, files, instant, "{}", rule, unlisted=unlisted)


def planned(history: History, instant: str, rule: DataCompactionRule = EVERY_LOG) -> CompactionPlan:
    plan = plan_of(history, instant, rule)
    assert plan is not None
    return plan


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_merges_exactly_what_completed_before_it(seed):
    history = random_history(seed)
    for moment in range(20, history.end, 37):
        instant, before = t(moment), t(moment - 1)
        expected = {group: history.read_at(group, before) for group in GROUPS}
        plan = plan_of(history, instant)
        found = {
            (each.partition, each.file_id): {each.base_file, *each.log_files}
            for each in (plan.operations if plan else ())
        }
        assert found == {group: names for group, names in expected.items() if len(names) > 1}


def with_metadata_deltacommits(history: History) -> InstantValidity:
    """The same history as that of a metadata table: its writes are those of the data timeline."""
    writes = [each for each in history.timeline().instants if each.action is Action.DELTA_COMMIT]
    return InstantValidity(Timeline(tuple(writes)), history.timeline())


@pytest.mark.parametrize("seed", range(15))
def test_a_plan_of_the_index_has_every_group_with_log_files(seed):
    history = random_history(seed)
    validity = with_metadata_deltacommits(history)
    for moment in range(20, history.end, 53):
        plan = plan_index_compaction(validity, history.files(), t(moment))
        assert not isinstance(plan, NotNow)
        expected = {group: history.read_at(group, t(moment - 1)) for group in GROUPS}
        found = {
            (each.partition, each.file_id): {each.base_file, *each.log_files}
            for each in (plan.operations if plan else ())
        }
        assert found == {group: names for group, names in expected.items() if len(names) > 1}


def three_groups(logs: int = 2) -> History:
    """Three groups with a base file of 100 bytes and as many log files of 10 bytes each."""
    events = [Event(t(1), t(2), GROUPS, is_base=True)]
    events += [Event(t(10 * n), t(10 * n + 1), GROUPS) for n in range(1, logs + 1)]
    return History(events, 10 * logs + 10)


def test_nothing_is_due_below_the_values_of_the_rule():
    history, rule = three_groups(logs=4), DataCompactionRule(ratio_from_bytes=1)
    assert plan_of(history, t(900), rule) is None
    assert len(planned(three_groups(logs=5), t(900), rule).operations) == 3, "half the base"


def test_old_log_files_are_due():
    history = three_groups(logs=1)
    rule = DataCompactionRule(log_age_ms=5_000)
    assert plan_of(history, t(5_009), rule) is None
    assert len(planned(history, t(5_010), rule).operations) == 3


def test_an_action_is_bounded_and_says_where_it_left_log_files():
    history = three_groups()
    history.events.append(Event(t(50), t(51), (("p", "b-0"),)))
    plan = planned(history, t(900), replace(EVERY_LOG, max_groups=1))
    assert [each.file_id for each in plan.operations] == ["b-0"], "the one with the most log files"
    assert plan.missing_partitions == ("p", "q")
    by_bytes = planned(history, t(900), replace(EVERY_LOG, max_bytes=260))
    assert [each.file_id for each in by_bytes.operations] == ["a-0", "b-0"]
    assert by_bytes.missing_partitions == ("q",)
    assert planned(history, t(900), replace(EVERY_LOG, max_bytes=1)).operations, "the first one is taken"


def test_partitions_that_were_not_listed_are_among_the_missing():
    history = three_groups()
    only_p = {"p": history.files()["p"]}
    plan = plan_of(history, t(900), files=only_p, unlisted=("q",))
    assert plan is not None
    assert ({each.partition for each in plan.operations}, plan.missing_partitions) == ({"p"}, ("q",))


@pytest.mark.parametrize("number", range(3), ids=["compacting", "log_compacting", "clustering"])
def test_groups_under_another_engines_plan_are_left_out(number):
    history = three_groups()
    plans: list[dict[tuple[str, str], str]] = [{}, {}, {}]
    plans[number][("p", "a-0")] = t(30)
    view = TableView(history.timeline(), {}, plans[0], plans[1], plans[2])
    plan = plan_of(history, t(900), view=view)
    assert plan is not None
    assert [each.file_id for each in plan.operations] == ["b-0", "c-0"]
    assert plan.missing_partitions == ("p",)


def test_a_plan_holds_while_only_later_log_files_came():
    history = three_groups()
    plan = planned(history, t(100))
    history.events.append(Event(t(90), t(120), GROUPS))
    assert recheck_data_compaction(plan, history.view(), history.files()) == plan


def test_a_log_file_that_completed_before_the_plan_by_another_clock_drops_its_group():
    history = three_groups()
    plan = planned(history, t(100))
    history.events.append(Event(t(80), t(81), (("p", "a-0"),)))
    kept = recheck_data_compaction(plan, history.view(), history.files())
    assert isinstance(kept, CompactionPlan)
    assert [number for number, _ in kept.kept()] == [1, 2]
    assert (kept.operations, kept.dropped, kept.missing_partitions) == (plan.operations, (0,), ("p",))


def test_a_newer_base_file_and_a_replaced_group_drop_the_group():
    history = three_groups()
    plan = planned(history, t(100))
    history.events.append(Event(t(120), t(130), (("p", "a-0"),), is_base=True))
    view = history.view(replaced={("q", "c-0"): t(140)})
    kept = recheck_data_compaction(plan, view, history.files())
    assert isinstance(kept, CompactionPlan)
    assert kept.dropped == (0, 2)


def test_a_plan_of_which_nothing_holds_is_void():
    history = three_groups()
    plan = planned(history, t(100))
    history.events.append(Event(t(80), t(81), GROUPS))
    assert isinstance(recheck_data_compaction(plan, history.view(), history.files()), NotNow)


def index_of(history: History) -> CompactionPlan:
    plan = plan_index_compaction(with_metadata_deltacommits(history), history.files(), t(100))
    assert isinstance(plan, CompactionPlan)
    return plan


def reason_after(history: History, plan: CompactionPlan, validity: InstantValidity | None = None) -> str:
    validity = validity or with_metadata_deltacommits(history)
    found = recheck_index_compaction(plan, validity, history.files())
    assert isinstance(found, NotNow)
    return found.reason


def test_an_index_compaction_is_whole_or_void():
    history = three_groups()
    plan = index_of(history)
    history.events.append(Event(t(110), t(111), GROUPS))
    again = recheck_index_compaction(plan, with_metadata_deltacommits(history), history.files())
    assert again == plan, "a later log file does not matter"
    history.events.append(Event(t(80), t(81), (("p", "a-0"),)))
    assert "no longer those of the plan" in reason_after(history, plan)


def test_an_index_compaction_is_void_behind_another_one():
    history = three_groups()
    plan = index_of(history)
    history.events.append(Event(t(120), t(130), GROUPS, is_base=True))
    assert "newer base file" in reason_after(history, plan)


def with_instant(validity: InstantValidity, instant: Instant) -> InstantValidity:
    return InstantValidity(validity.data, Timeline((*validity.metadata.instants, instant)))


@pytest.mark.parametrize(
    ("instant", "reason"),
    [
        (Instant(t(120), Action.LOG_COMPACTION, State.INFLIGHT), "about to compact"),
        (Instant(t(120), Action.COMPACTION, State.REQUESTED), "about to compact"),
        (Instant(t(90), Action.LOG_COMPACTION, State.COMPLETED, t(130)), "log compaction"),
        (Instant(t(120), Action.LOG_COMPACTION, State.COMPLETED, t(130)), "log compaction"),
        (Instant(t(85), Action.DELTA_COMMIT, State.COMPLETED, t(86)), "does not have"),
    ],
)
def test_what_other_engines_do_to_the_index_makes_a_plan_void(instant, reason):
    history = three_groups()
    plan = index_of(history)
    validity = with_instant(with_metadata_deltacommits(history), instant)
    assert reason in reason_after(history, plan, validity)


def test_the_own_instant_on_the_timeline_does_not_void_the_plan():
    history = three_groups()
    plan = index_of(history)
    own = Instant(t(100), Action.COMPACTION, State.INFLIGHT)
    validity = with_instant(with_metadata_deltacommits(history), own)
    assert recheck_index_compaction(plan, validity, history.files()) == plan


def test_a_half_made_commit_of_another_writer_holds_the_index_back():
    """Its log files would be left out, and lost to readers when its data commit completes."""
    history = three_groups()
    pending = Instant(t(85), Action.DELTA_COMMIT, State.INFLIGHT)
    validity = with_metadata_deltacommits(history)
    data = Timeline((*validity.data.instants, pending))
    done = Instant(t(85), Action.DELTA_COMMIT, State.COMPLETED, t(86))
    metadata = Timeline((*validity.metadata.instants, done))
    found = plan_index_compaction(InstantValidity(data, metadata), history.files(), t(100))
    assert isinstance(found, NotNow)
    assert "pending in the table" in found.reason
