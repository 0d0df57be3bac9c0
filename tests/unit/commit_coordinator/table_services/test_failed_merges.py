"""A file group that cannot be merged keeps no other one from compactions, and is tried again alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.calls.placement import CompactedSlice, Placement, Want, load_listed
from tidemark.commit_coordinator.calls.service_handoff import (
    FailedOperation,
    GrantedSlots,
    OfferedService,
    ServiceHandoff,
    ServiceNews,
)
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.domain.service_actions import TASK_TRIES_MAX, CompleteService, SeenServices
from tidemark.commit_coordinator.domain.slice_stats import FailedMerge, GroupName, SliceStats, TableSlices
from tidemark.commit_coordinator.errors import ActionLostError, LeftOutError
from tidemark.commit_coordinator.table_services.chosen_groups import FailedMerges, GroupChoice
from tidemark.commit_coordinator.table_services.runner import HANDLED_BY, ServiceRules, ServiceRunner
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation, encode_plan
from tidemark.hudi_format.table_services.triggers import DataCompactionRule
from tidemark.hudi_format.timeline.avro_records import WriteStat

KIND = ServiceKind.COMPACT_DATA
PLANNED = ServicePlanned(1, 7, KIND, "20260101000000000", "plan", "sha", 0)
MINUTE_MS = 60_000


RULE = DataCompactionRule(log_files=1, max_groups=2)
NOBODY: frozenset[GroupName] = frozenset()


def slices_of(*names: str, failed: dict[str, FailedMerge] | None = None) -> TableSlices:
    data = tuple(SliceStats("p", name, 9, 1, 9, 1) for name in names)
    return TableSlices(data, failed={("p", name): merge for name, merge in (failed or {}).items()})


def names_of(groups: set[GroupName]) -> str:
    return "".join(sorted(file_id for _, file_id in groups))


def plan_of(*groups: tuple[str, str]) -> bytes:
    operations = (MergeOperation(path, file_id, "1", None, (), 0, 0) for path, file_id in groups)
    return encode_plan(CompactionPlan(PLANNED.instant, False, "", tuple(operations)))


def test_the_others_are_compacted_and_the_group_that_failed_is_tried_again_alone(tmp_path: Path) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    placement = story.served.placement

    def with_logs() -> set[tuple[str, str]]:
        return {stats.group for stats in placement.snapshot().data if stats.log_count}

    bad, *others = sorted(with_logs())
    assert others
    placement.merge_failed({bad: "a block is damaged"}, story.clock.now_ms())
    assert story.served.act(KIND)
    assert with_logs() == {bad}
    assert not story.served.act(KIND)
    for n in range(5):
        story.commit((n,))
    story.pass_by(601)
    story.served.list_files()
    assert with_logs() > {bad}
    assert story.served.act(KIND)
    assert bad not in with_logs()
    assert with_logs(), "it was alone"
    assert not placement.snapshot().failed
    assert story.served.act(KIND)
    assert not with_logs()
    story.check()


def test_groups_that_failed_and_the_others_take_turns() -> None:
    choice, failed = GroupChoice(), {name: FailedMerge(1, 0, "why") for name in "abc"}
    later = 10 * MINUTE_MS
    slices = slices_of(*"abcxyz", failed=failed)
    assert names_of(choice.groups(slices, RULE, later - 1, NOBODY)) == "xy"
    seen = []
    for number in range(6):
        seen.append(names_of(choice.groups(slices, RULE, later, NOBODY)))
        if seen[-1] in failed:
            failed[seen[-1]] = FailedMerge(2, later + number, "why")
            slices = slices_of(*"abcxyz", failed=failed)
    assert seen == ["a", "xy", "b", "xy", "c", "xy"]


def test_groups_that_failed_follow_each_other_where_no_other_one_is_due() -> None:
    choice = GroupChoice()
    slices = slices_of(
        *"abc", failed={name: FailedMerge(1, at, "why") for name, at in zip("abc", (2, 1, 3), strict=True)}
    )
    for _ in range(2):
        assert names_of(choice.groups(slices, RULE, 99 * MINUTE_MS, NOBODY)) == "b", "it waits longest"
    assert names_of(choice.groups(slices, RULE, 99 * MINUTE_MS, frozenset({("p", "b")}))) == "a"


def test_of_many_failed_groups_each_is_tried_again_and_the_others_keep_every_second_action() -> None:
    placement, choice, bad = Placement(1 << 20, SeededIds(1)), GroupChoice(), set("abcdefghij")
    log = WriteStat(file_id="", path="p", partition_path="p", file_size_in_bytes=9, log_files=("l",))
    placement.merge_failed({("p", name): "why" for name in bad}, 0)
    taken = []
    for now_ms in range(0, 24 * 60 * MINUTE_MS, 20_000):
        written = [replace(log, file_id=name) for name in (*sorted(bad), *"xyz")]
        placement.committed(Report(tuple(written), ()), now_ms)
        groups = choice.groups(placement.snapshot(), RULE, now_ms, NOBODY)
        taken.append(names_of(groups))
        if taken[-1] in bad:
            placement.merge_failed(dict.fromkeys(groups, "why"), now_ms)
        else:
            done = [CompactedSlice(*group, 9, 1 << 20, 0) for group in groups]
            placement.compacted(done, now_ms, is_index=False)
    retried = [number for number, names in enumerate(taken) if names in bad]
    assert all(after - before > 1 for before, after in pairwise(retried))
    assert {failed.tries for failed in placement.snapshot().failed.values()} == {9}
    assert set("".join(names for names in taken if names not in bad)) == set("xyz")


def test_what_is_asked_for_has_turns_of_its_own_and_does_not_wait_for_a_pause() -> None:
    """Else an operator who repaired a group would not know whether it was tried; and one who pauses services
    and runs them at night would never get the others compacted.
    """
    choice, slices = GroupChoice(), slices_of(*"ax", failed={"a": FailedMerge(1, 0, "why")})
    assert names_of(choice.groups(slices, RULE, 10 * MINUTE_MS, NOBODY)) == "a"
    asked = [names_of(choice.groups(slices, RULE, 1, NOBODY, asked=True)) for _ in range(4)]
    assert asked == ["a", "x", "a", "x"]


def test_an_operator_who_asks_has_it_tried_again_at_once_and_alone(tmp_path: Path) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    placement = story.served.placement
    groups = {stats.group for stats in placement.snapshot().data if stats.log_count}
    bad = min(groups)
    placement.merge_failed({bad: "a block is damaged"}, story.clock.now_ms())
    for left in (groups - {bad}, set[tuple[str, str]]()):
        assert story.served.act(KIND, asked=True)
        assert {stats.group for stats in placement.snapshot().data if stats.log_count} == left
    story.check()


def test_what_another_engine_has_merged_is_not_left_out_any_more_also_when_it_was_written_since(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    placement = Placement(1 << 20, SeededIds(1))

    def failed() -> set[tuple[str, str]]:
        load_listed(story.storage, None, placement)
        return set(placement.snapshot().failed)

    assert failed() == set()
    slices = {stats.group: stats for stats in placement.snapshot().data}
    with_logs = {group for group, stats in slices.items() if stats.log_count}
    assert with_logs
    placement.merge_failed({("p", "gone"): "why", **dict.fromkeys(slices, "why")}, 0)
    assert failed() == with_logs
    story.commit(range(12))
    assert failed() == with_logs, "they have more log files, and the damaged ones"
    assert story.served.act(KIND)
    story.commit(range(12))
    assert failed() == set()
    assert with_logs <= {stats.group for stats in placement.snapshot().data if stats.log_count}


def test_a_group_that_cannot_be_merged_gets_no_inserts_until_it_can() -> None:
    placement = Placement(1 << 20, SeededIds(1))
    stats = [WriteStat(file_id=name, path=name, partition_path="p", file_size_in_bytes=9) for name in "ab"]
    placement.committed(Report(tuple(stats), ()), 1)
    want = [Want("p", 1, 1)]
    placement.merge_failed({("p", "b"): "why", ("q", "a"): "why"}, 5)
    assert [lease.file_id for lease in placement.lease(want)] == ["a"]
    placement.merge_failed({("p", "a"): "why"}, 5)
    assert placement.lease(want)[0].file_id not in "ab"
    placement.compacted([CompactedSlice("p", "b", 1 << 19, 1, 9)], 9, is_index=False)
    assert [lease.file_id for lease in placement.lease(want)] == ["b"]


def test_pauses_double_up_to_six_hours() -> None:
    minutes = [FailedMerge(tries, 0, "why").until_ms // MINUTE_MS for tries in range(1, 9)]
    assert minutes == [10, 20, 40, 80, 160, 320, 360, 360]
    placement = Placement(1 << 20, SeededIds(1))
    for now_ms in (5, 7):
        placement.merge_failed({("p", "a"): f"at {now_ms}"}, now_ms)
    assert placement.snapshot().failed == {("p", "a"): FailedMerge(2, 7, "at 7")}


def news(*failed: FailedOperation, done: int = 1, number: int = 7) -> ServiceNews:
    return ServiceNews(number, "three operations failed", failed, done)


def damaged(number: int, reason: str = "damaged") -> FailedOperation:
    return FailedOperation(number, reason, True)


def perhaps(number: int, reason: str = "no memory") -> FailedOperation:
    return FailedOperation(number, reason, False)


class Noted:
    """What is noted of an action of the groups a, b and c."""

    def __init__(self, *groups: str, kind: ServiceKind = KIND) -> None:
        self.placement = Placement(1 << 20, SeededIds(1))
        names = [("p", group) for group in groups or "abc"]
        self.merges = FailedMerges(self.placement, lambda _: plan_of(*names))
        self.planned = ServicePlanned(1, 7, kind, PLANNED.instant, "plan", "sha", 0)

    def after(self, *tries: ServiceNews) -> dict[str, str]:
        self.are_the_cause = False
        for number, each in enumerate(tries, 1):
            self.are_the_cause = self.merges.note(self.planned, each, number == len(tries), 5)
        failed = self.placement.snapshot().failed.items()
        return {file_id: merge.reason for (_, file_id), merge in failed}


def test_a_group_that_any_try_found_damaged_is_noted_with_its_own_reason() -> None:
    noted = Noted()
    found = noted.after(news(damaged(0, "a block")), news(damaged(2, "a magic"), damaged(99)), news(done=0))
    assert found == {"a": "a block", "c": "a magic"}
    assert noted.are_the_cause


def test_what_may_be_the_machine_is_noted_when_it_fails_in_each_try_while_others_are_done() -> None:
    assert Noted().after(news(perhaps(1)), news(perhaps(1), perhaps(2)), news(perhaps(1, "last"))) == {
        "b": "last"
    }
    for tries in (
        [news(perhaps(1)), news(perhaps(0)), news(perhaps(1))],
        [news(perhaps(1)), news(perhaps(1), done=0), news(perhaps(1))],
        [news(perhaps(1)), news(perhaps(1))],
        [news(), news(), news()],
    ):
        noted = Noted()
        assert noted.after(*tries) == {}
        assert not noted.are_the_cause


def test_failures_of_an_earlier_action_do_not_count() -> None:
    noted = Noted()
    noted.merges.note(noted.planned, news(damaged(0), number=6), False, 5)
    assert noted.after(news(damaged(1))) == {"b": "damaged"}


def test_a_group_that_is_tried_again_alone_is_to_blame_for_whatever_failed() -> None:
    noted = Noted("a")
    full = news(done=0)
    assert noted.after(full, full, full) == {}
    noted.placement.merge_failed({("p", "a"): "damaged"}, 1)
    assert noted.after(full, full, full) == {"a": "three operations failed"}
    assert noted.are_the_cause
    assert noted.placement.snapshot().failed["p", "a"].tries == 2


def test_of_the_metadata_table_all_groups_are_compacted_together() -> None:
    noted = Noted(kind=ServiceKind.COMPACT_INDEX)
    assert noted.after(news(damaged(0))) == {}
    assert not noted.are_the_cause


def test_a_plan_that_cannot_be_read_notes_nothing() -> None:
    placement = Placement(1 << 20, SeededIds(1))

    def gone(_: ServicePlanned) -> bytes:
        raise FileMissingError("plan")

    assert not FailedMerges(placement, gone).note(PLANNED, news(damaged(0)), True, 5)
    assert not placement.snapshot().failed


@pytest.mark.parametrize("of_groups", [True, False])
def test_an_action_that_is_given_up_because_of_groups_is_no_failure_of_its_kind(of_groups: bool) -> None:
    """Else each group that is tried again alone would make the others wait longer, up to ten minutes, and end
    their backpressure.
    """
    handoff, noted = ServiceHandoff(ManualClock()), list[tuple[ServiceNews, bool]]()
    handler = SimpleNamespace(kind=KIND, has_tasks=True, sweeps_with_lock=False)
    context = SimpleNamespace(lock=SimpleNamespace(is_held=False), index_build_ms=0)
    runner = ServiceRunner(cast(Any, context), [cast(Any, handler)], handoff, ServiceRules())

    def note(_: ServicePlanned, news: ServiceNews, is_last: bool, now_ms: int) -> bool:
        noted.append((news, is_last))
        return is_last and of_groups

    runner.note_failed = note
    state, seen = cast(Any, SimpleNamespace(services={KIND: OpenService(PLANNED)})), SeenServices()
    observed = cast(Any, SimpleNamespace(services=seen))
    for number in range(TASK_TRIES_MAX):
        handoff.offer(OfferedService(PLANNED, "token", GrantedSlots(0.25)))
        assert handoff.fail(PLANNED.service, "worker", f"why {number}", (damaged(number),), 3)
        runner.look(state, observed, 0)
    assert noted == [
        (ServiceNews(PLANNED.service, f"why {number}", (damaged(number),), 3), number == TASK_TRIES_MAX - 1)
        for number in range(TASK_TRIES_MAX)
    ]
    assert seen.action(PLANNED.service).lost == "why 2"
    seen.void(PLANNED, "why 2", 5)
    assert seen.kind(KIND).failures == (0 if of_groups else 1)
    assert seen.kind(KIND).ended_ms == 5


@pytest.mark.parametrize("error", [LeftOutError("a write cannot be undone"), ActionLostError("came between")])
def test_an_action_that_is_lost_because_of_what_is_left_out_is_no_failure_of_its_kind(
    error: ActionLostError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise error

    monkeypatch.setitem(cast(Any, HANDLED_BY), CompleteService, lost)
    handler = SimpleNamespace(kind=KIND, has_tasks=False, sweeps_with_lock=False)
    runner = ServiceRunner(
        cast(Any, SimpleNamespace(index_build_ms=0)),
        [cast(Any, handler)],
        ServiceHandoff(ManualClock()),
        ServiceRules(),
    )
    seen = SeenServices()
    seen.step_failed(PLANNED.service, "the try before", 1)
    runner.carry_out(CompleteService(PLANNED, cast(Any, None)), cast(Any, SimpleNamespace(services=seen)))
    is_left_out = isinstance(error, LeftOutError)
    words = str(error) if is_left_out else f"the try before; meanwhile {error}"
    assert seen.action(PLANNED.service).lost == words
    seen.void(PLANNED, words, 5)
    assert seen.kind(KIND).failures == (0 if is_left_out else 1)
