"""Which instants go to the archive. The oracle says of a set of instants whether it may go, rule by rule and
without any order of its own; what the planner takes has to be the greatest set of which it says yes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

import pytest

from tests.hudi_rules.timeline import parse_timeline
from tidemark.hudi_format.table_services.archive_planning import (
    BEHIND_AFTER,
    FORGOTTEN_AFTER,
    IDLE_AFTER,
    Archivable,
    ArchiveBounds,
    ArchivedName,
    ArchivePlan,
    decode_archive_plan,
    plan_data_archive,
    plan_metadata_archive,
)
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline

WRITES: Final = {
    Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT, Action.COMPACTION, Action.LOG_COMPACTION,
    Action.CLUSTERING,
}  # fmt: skip
BESIDE: Final = {Action.CLEAN, Action.ROLLBACK}
STAYING: Final = {Action.RESTORE, Action.INDEXING}
REPLACING: Final = {Action.REPLACE_COMMIT, Action.CLUSTERING}
NOTHING_LEFT: Final = ArchiveBounds(least=2, behind=0, idle=0)


def t(n: int) -> str:
    return f"202601010000{n:05d}"


def done(n: int, completion: int | None = None, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(t(n), action, State.COMPLETED, t(n + 5 if completion is None else completion))


def pending(n: int, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(t(n), action, State.INFLIGHT)


def timeline(*instants: Instant) -> Timeline:
    return Timeline(tuple(sorted(instants, key=lambda each: (each.requested, each.action.value))))


COMPACTED: Final = timeline(done(900, action=Action.COMPACTION))
DELTAS: Final = tuple(done(n) for n in range(0, 100, 10))


def data_archive(
    data: Timeline,
    metadata: Timeline = COMPACTED,
    bounds: ArchiveBounds = NOTHING_LEFT,
    gone: bool = True,
    logs: frozenset[str] = frozenset(),
    behind: frozenset[str] = frozenset(),
) -> list[str]:
    found = plan_data_archive(
        data,
        metadata,
        bounds,
        is_gone=lambda _: gone,
        lies_behind=lambda write: write.requested in behind,
        with_logs=lambda: logs,
    )
    return [each.requested for each in found.instants]


def index_archive(
    metadata: Timeline,
    data: Timeline,
    bounds: ArchiveBounds = NOTHING_LEFT,
    in_slices: frozenset[str] = frozenset(),
    under_slices: frozenset[str] = frozenset(),
) -> list[str]:
    found = plan_metadata_archive(
        metadata,
        data,
        bounds,
        in_slices=in_slices.intersection,
        under_slices=lambda: under_slices,
        with_logs=frozenset,
    )
    return [each.requested for each in found.instants]


def test_all_but_the_least_number_of_writes_go() -> None:
    assert data_archive(timeline(*DELTAS)) == [t(n) for n in range(0, 80, 10)]
    assert data_archive(timeline(*DELTAS), bounds=ArchiveBounds(least=10)) == []
    assert data_archive(timeline(*DELTAS), bounds=ArchiveBounds(least=11)) == []


def test_nothing_goes_while_the_metadata_table_was_not_compacted() -> None:
    found = plan_data_archive(
        timeline(*DELTAS),
        timeline(),
        NOTHING_LEFT,
        is_gone=lambda _: True,
        lies_behind=lambda _: False,
        with_logs=frozenset,
    )
    assert found == Archivable((), "the metadata table was not compacted yet")


@pytest.mark.parametrize(
    ("more", "metadata", "bounds", "last"),
    [
        ([pending(55)], COMPACTED, NOTHING_LEFT, 40),
        ([pending(55, Action.CLEAN)], COMPACTED, NOTHING_LEFT, 50),
        ([pending(35, Action.ROLLBACK)], COMPACTED, NOTHING_LEFT, 30),
        ([], timeline(done(45, action=Action.COMPACTION)), NOTHING_LEFT, 30),
        ([done(11, 400)], COMPACTED, NOTHING_LEFT, 70),
        ([done(11, 400)], timeline(done(300, action=Action.COMPACTION)), NOTHING_LEFT, 10),
        ([done(50, 60, Action.SAVEPOINT)], COMPACTED, NOTHING_LEFT, 40),
        ([], COMPACTED, replace(NOTHING_LEFT, open_instants=[t(55), t(28)]), 20),
        ([], COMPACTED, replace(NOTHING_LEFT, last_commit=t(60)), 40),
        ([done(42, action=Action.INDEXING)], COMPACTED, NOTHING_LEFT, 40),
    ],
    ids=[
        "pending write", "pending clean", "pending rollback", "index compaction", "completed late",
        "completed after the index compaction", "savepoint", "open action",
        "the last epoch and the write before it", "indexing",
    ],
)  # fmt: skip
def test_each_bound_holds_back_what_somebody_needs(
    more: list[Instant], metadata: Timeline, bounds: ArchiveBounds, last: int
) -> None:
    logs = frozenset(t(n) for n in range(0, 100, 10))
    assert data_archive(timeline(*DELTAS, *more), metadata, bounds, logs=logs)[-1] == t(last)


def test_the_last_epoch_of_an_idle_table_goes_when_many_writes_of_others_are_newer() -> None:
    bounds = replace(NOTHING_LEFT, last_commit=t(10))
    many = timeline(*(done(n) for n in range(0, 10 * FORGOTTEN_AFTER * bounds.least + 10, 10)))
    assert data_archive(many, bounds=bounds) == []
    more = timeline(*(done(n) for n in range(0, 10 * FORGOTTEN_AFTER * bounds.least + 20, 10)))
    assert data_archive(more, bounds=bounds)[-1] == t(10 * (FORGOTTEN_AFTER - 1) * bounds.least + 10)


def test_cleans_and_rollbacks_go_with_the_writes_around_them() -> None:
    beside = [done(5, action=Action.CLEAN), done(65, action=Action.ROLLBACK), done(75, action=Action.CLEAN)]
    gone = data_archive(timeline(*DELTAS, *beside))
    assert t(5) in gone
    assert t(65) in gone
    assert t(75) not in gone


def test_a_replacecommit_goes_when_its_files_are_gone_and_no_later_one_is_asked_about() -> None:
    asked: list[str] = []

    def is_gone(instant: Instant) -> bool:
        asked.append(instant.requested)
        return instant.requested == t(25)

    replacing = [done(n, action=Action.REPLACE_COMMIT) for n in (25, 35, 45, 95)]
    found = plan_data_archive(
        timeline(*DELTAS, *replacing),
        COMPACTED,
        NOTHING_LEFT,
        is_gone=is_gone,
        lies_behind=lambda _: False,
        with_logs=frozenset,
    )
    assert found.instants[-1].requested == t(30)
    assert asked == [t(25), t(35)]
    assert "not cleaned" in found.held_by


def test_a_write_that_was_open_beside_a_compaction_stays_until_its_file_groups_are_compacted_again() -> None:
    """Example: requested at 11, completed at 24, and a compaction was requested at 15."""
    late, all_go = done(11, 24), t(70)
    compacted = timeline(*DELTAS, late, done(15, 90, Action.COMPACTION))
    assert data_archive(compacted, behind=frozenset({t(11)}))[-1] == t(10)
    assert data_archive(compacted)[-1] == all_go, "compacted again, or in other file groups"
    for before_or_after in (done(8, 90, Action.COMPACTION), done(26, 90, Action.COMPACTION)):
        others = timeline(*DELTAS, late, before_or_after)
        assert data_archive(others, behind=frozenset({t(11)}))[-1] == all_go, "it was not open then"
    at_the_end = timeline(*DELTAS, late, done(24, 90, Action.COMPACTION))
    assert data_archive(at_the_end, behind=frozenset({t(11)}))[-1] == t(10)


def test_a_write_beside_a_compaction_that_is_not_completed_stays() -> None:
    """Nobody can tell yet. Of our own there is nothing on the timeline before it is decided."""
    late = timeline(*DELTAS, done(31, 54))
    assert data_archive(timeline(*late.instants, pending(45, Action.COMPACTION)))[-1] == t(30)
    assert data_archive(late, bounds=replace(NOTHING_LEFT, open_instants=[t(45)]))[-1] == t(30)


def test_a_write_behind_a_compaction_goes_when_many_writes_are_newer() -> None:
    """Perhaps its file group is never compacted again."""
    behind, most = frozenset({t(1)}), BEHIND_AFTER * NOTHING_LEFT.least
    late = [done(1, 9), done(5, 9, Action.COMPACTION)]
    newer = [done(10 * n) for n in range(1, most)]
    assert data_archive(timeline(*late, *newer[:-1]), behind=behind) == []
    assert data_archive(timeline(*late, *newer), behind=behind)[0] == t(1)
    # Where few writes always stay it is a number of its own.
    for bound, is_held in ((most, False), (most + 1, True)):
        bounds = replace(NOTHING_LEFT, behind=bound)
        assert (data_archive(timeline(*late, *newer), bounds=bounds, behind=behind) == []) is is_held


def test_behind_a_restore_only_what_has_no_log_file_left_goes() -> None:
    restored = timeline(*DELTAS, done(32, action=Action.RESTORE))
    assert data_archive(restored, logs=frozenset({t(0), t(60)}))[-1] == t(50)
    assert data_archive(restored, logs=frozenset({t(40)}))[-1] == t(30)
    assert data_archive(restored)[-1] == t(70)
    assert t(32) not in data_archive(restored)


def test_the_metadata_tables_bounds() -> None:
    metadata = timeline(*DELTAS, done(35, action=Action.COMPACTION), done(75, action=Action.COMPACTION))
    data = timeline(done(200))
    assert index_archive(metadata, data)[-1] == t(70)
    # A savepoint may be made of what is active in the data table.
    assert index_archive(metadata, timeline(done(50)))[-1] == t(30)
    assert index_archive(metadata, timeline(done(30)))[-1] == t(20)
    assert index_archive(metadata, timeline(pending(20, Action.CLEAN), done(50)))[-1] == t(10)
    assert index_archive(metadata, data, in_slices=frozenset({t(60), t(40)}))[-1] == t(35)
    # A restore to 50 needs the compaction of 35, one to 20 needs the timeline from there on.
    assert index_archive(metadata, timeline(done(50, action=Action.SAVEPOINT), done(200)))[-1] == t(30)
    assert index_archive(metadata, timeline(done(20, action=Action.SAVEPOINT), done(200)))[-1] == t(10)
    assert index_archive(timeline(*DELTAS), data) == []
    assert index_archive(metadata, timeline()) == []


def test_a_compaction_stays_that_made_the_base_file_of_a_current_slice() -> None:
    compactions = [done(n, action=Action.COMPACTION) for n in (15, 35, 75)]
    metadata, data = timeline(*DELTAS, *compactions), timeline(done(200))
    assert index_archive(metadata, data, under_slices=frozenset({t(35), t(75)}))[-1] == t(30)
    archived_long_ago = frozenset({t(5), t(75)})
    assert index_archive(metadata, data, under_slices=archived_long_ago)[-1] == t(70)
    # Perhaps its file group is never written to again.
    most = IDLE_AFTER * NOTHING_LEFT.least
    newer = [done(100 + n) for n in range(most)]
    few, many = (
        timeline(*compactions, done(90, action=Action.COMPACTION), *newer[:n]) for n in (most - 4, most)
    )
    assert index_archive(few, data, under_slices=frozenset({t(15)})) == []
    assert t(15) in index_archive(many, data, under_slices=frozenset({t(15)}))


# ------------------------------------------------------------ the oracle


def _may_go(
    data: Timeline,
    metadata: Timeline,
    bounds: ArchiveBounds,
    gone: set[str],
    logs: set[str],
    behind: set[str],
):
    """Whether a set of data instants may go."""
    compacted = max((i.requested for i in metadata.instants if i.action is Action.COMPACTION), default="")
    compactions = [i for i in data.instants if i.action is Action.COMPACTION]
    unfinished = {*bounds.open_instants, *(i.requested for i in compactions if not i.is_completed)}

    def must_stay(write: Instant) -> bool:
        if sum(w.requested >= write.requested for w in writes) > BEHIND_AFTER * bounds.least:
            return False
        beside = (
            unfinished
            if write.requested not in behind
            else {*unfinished, *(c.requested for c in compactions)}
        )
        return any(write.requested < each <= str(write.completion) for each in beside)

    writes = [i for i in data.instants if i.is_completed and i.action in WRITES]

    def says(taken: set[str]) -> bool:
        staying = [i for i in data.instants if i.requested not in taken]
        left = [i for i in writes if i.requested not in taken]
        going = [i for i in data.instants if i.requested in taken]
        rules = [
            len(left) >= bounds.least,
            all(i.is_completed and i.action in WRITES | BESIDE for i in going),
            all(str(i.completion) < compacted for i in going),
            not any(s.requested < each for s in staying if s.action not in STAYING for each in taken),
            # Of the writes below a pending one the last stays.
            all(
                any(w.requested < p.requested for w in left)
                or not any(w.requested < p.requested for w in writes)
                for p in staying
                if not p.is_completed and p.action in WRITES
            ),
            not any(each >= service for service in bounds.open_instants for each in taken),
            all(i.requested in gone for i in going if i.action in REPLACING),
            not any(must_stay(i) for i in going if i.action is Action.DELTA_COMMIT),
            not any(
                i.requested > s.requested and i.requested in logs
                for i in going
                for s in staying
                if s.action in STAYING
            ),
        ]
        newer = [w for w in writes if w.requested > (bounds.last_commit or "")]
        if bounds.last_commit is not None and len(newer) < FORGOTTEN_AFTER * bounds.least:
            before = [w.requested for w in writes if w.requested < bounds.last_commit]
            rules.append(not any(each >= max(before, default=bounds.last_commit) for each in taken))
        return not taken or all(rules)

    return says


def _random_data(chance: random.Random) -> Timeline:
    instants: list[Instant] = []
    kinds = [Action.DELTA_COMMIT] * 12 + [
        Action.COMPACTION, Action.CLEAN, Action.ROLLBACK, Action.REPLACE_COMMIT, Action.CLUSTERING,
    ]  # fmt: skip
    for n in range(0, 10 * chance.randrange(4, 16), 10):
        kind = chance.choice(kinds)
        late = chance.randrange(1, 60) if chance.random() < 0.2 else 5
        instants.append(done(n, n + late, kind))
        if chance.random() < 0.04:
            instants[-1] = pending(n, kind)
    if chance.random() < 0.1:
        saved = chance.choice(instants)
        instants.append(Instant(saved.requested, Action.SAVEPOINT, State.COMPLETED, t(999)))
    if chance.random() < 0.25:
        instants.append(done(chance.randrange(0, 150, 10) + 3, action=Action.RESTORE))
    return timeline(*instants)


@pytest.mark.parametrize("seed", range(100))
def test_exactly_what_the_rules_allow_goes(seed: int) -> None:
    chance = random.Random(seed)
    data = _random_data(chance)
    times = [i.requested for i in data.instants]

    def some(share: float) -> set[str]:
        return {each for each in times if chance.random() < share}

    metadata = timeline(done(chance.randrange(20, 200), 999, Action.COMPACTION))
    bounds = ArchiveBounds(
        least=chance.randrange(1, 5),
        behind=0,
        idle=0,
        open_instants=some(0.02),
        last_commit=chance.choice([None, *times]) if chance.random() < 0.5 else None,
    )
    gone, logs, behind = some(0.8), some(0.3), some(0.5)
    found = plan_data_archive(
        data,
        metadata,
        bounds,
        is_gone=lambda i: i.requested in gone,
        lies_behind=lambda i: i.requested in behind,
        with_logs=lambda: logs,
    )
    taken = {each.requested for each in found.instants}
    may_go = _may_go(data, metadata, bounds, gone, logs, behind)
    assert may_go(taken)
    able = [i for i in data.instants if i.is_completed and i.action in WRITES | BESIDE]
    following = next((i.requested for i in able if i.action in WRITES and i.requested not in taken), None)
    if following is not None:
        # With all that lies before it the next write may not go, either.
        assert not may_go({i.requested for i in able if i.requested <= following}), found.held_by
    _nothing_becomes_uncommitted(data, taken)


def _nothing_becomes_uncommitted(before: Timeline, taken: set[str]) -> None:
    """By Hudi's rule, written anew: what counted counts, what was pending is pending."""

    def of(instants: list[Instant]):
        names = [
            each.file_name
            if each.is_completed
            else Instant(each.requested, each.action, State.INFLIGHT).file_name
            for each in instants
        ]
        return parse_timeline(names)

    old = of(list(before.instants))
    new = of([each for each in before.instants if each.requested not in taken])
    for each in before.instants:
        if each.action in WRITES:
            assert new.counts(each.requested) == old.counts(each.requested)


def test_a_plan_is_a_document() -> None:
    plan = ArchivePlan(True, (ArchivedName(t(1), t(2), "compaction"), ArchivedName(t(5), t(7), "clean")))
    assert decode_archive_plan(plan.encode(), "x") == plan
    assert plan.file_name == f"{t(1)}_{t(5)}_0.parquet"
    assert plan.instants[0].instant().file_name == f"{t(1)}_{t(2)}.commit"
