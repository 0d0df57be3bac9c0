"""What of a timeline is new to a fold, by identity: others' commits, what they took back, the archive."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.metadata_tables import write_archive
from tidemark.commit_coordinator.commit.own_services import DeadInstants, DecidedService
from tidemark.commit_coordinator.commit.table_state import Rollbacks, load_timelines
from tidemark.commit_coordinator.commit.timeline_look import TimelineLook, look
from tidemark.epoch_protocol.seen import SeenInstants
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.state import FoldState, VoidedAttempt
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.hudi_format.timeline.service_records import (
    RollbackMetadata,
    RollbackPlan,
    encode_rollback_metadata,
    encode_rollback_plan,
)


def t(n: int) -> str:
    return f"20260101000000{n:03d}"


def name(n: int, completion: int, word: str = "deltacommit") -> str:
    return f"{t(n)}_{t(completion)}.{word}"


def looked(
    shown: list[str],
    seen: SeenInstants | None,
    archived: Sequence[str] = (),
    told: Mapping[str, bytes] = MappingProxyType({}),
    **state: Any,
) -> TimelineLook:
    """``shown``: names of completed files; ``archived``: identities in the archive. ``told``: path or
    identity -> content, of documents and of archived instants.
    """
    storage = InMemoryStorage()
    for each in shown:
        storage.create(f".hoodie/timeline/{each}", b"")
    for path in told.keys() - set(archived):
        storage.create(path, told[path])
    if archived:
        rows = [(each[:17], each[18:35], each.rpartition(".")[2], told.get(each, b"")) for each in archived]
        write_archive(storage, rows)
    return look(storage, load_timelines(storage), FoldState(seen=seen, **state))


def seen(*names: str, start: str = "", newest: str = t(0)) -> SeenInstants:
    return SeenInstants(start, set(names), newest)


def test_what_is_seen_is_no_surprise_and_what_is_not_is_foreign() -> None:
    found = looked([name(1, 2), name(3, 4)], seen(name(1, 2), start=t(1), newest=t(2)))
    assert (found.foreign, found.undone, found.forget_stamps) == ((name(3, 4),), (), False)
    assert looked([name(1, 2)], seen(name(1, 2), start=t(1))).surprises == ()


def test_a_commit_that_completed_at_or_below_what_was_seen_ends_the_stamps() -> None:
    for completion, forgets in [(4, True), (5, True), (6, False)]:
        found = looked([name(1, 5), name(3, completion)], seen(name(1, 5), start=t(1), newest=t(5)))
        assert (found.foreign, found.forget_stamps) == ((name(3, completion),), forgets)


def test_a_restore_ends_the_stamps_whenever_it_completed() -> None:
    found = looked([name(1, 2), name(8, 9, "restore")], seen(name(1, 2), start=t(1), newest=t(2)))
    assert (found.foreign, found.forget_stamps) == ((name(8, 9, "restore"),), True)


def test_what_was_seen_and_is_neither_there_nor_archived_was_undone() -> None:
    both = seen(name(1, 2), name(3, 4), start=t(1), newest=t(4))
    found = looked([name(1, 2)], both)
    assert (found.undone, found.removed, found.forget_stamps) == ((name(3, 4),), (name(3, 4),), True)
    found = looked([name(3, 4)], both, archived=[name(1, 2)])
    assert (found.surprises, found.removed, found.forget_stamps) == ((), (name(1, 2),), False)


def test_what_was_archived_before_anybody_saw_it_is_foreign() -> None:
    """From the start that the timeline had at the last look on: what lay before it was seen."""
    archived = [name(1, 2), name(3, 4), name(5, 6)]
    found = looked([name(9, 10)], seen(name(9, 10), start=t(3), newest=t(10)), archived)
    assert found.foreign == (name(3, 4), name(5, 6))
    assert found.forget_stamps
    assert looked([name(9, 10)], seen(name(3, 4), name(9, 10), start=t(3)), archived).foreign == (name(5, 6),)


def decided_service(kind: ServiceKind, instant: str, plan: bytes, data_completion: str) -> OpenService:
    document = msgspec.json.encode(DecidedService(kind, instant, plan))
    planned = ServicePlanned(1, 1, kind, instant, "plan", "", 0)
    return OpenService(
        planned,
        ServiceDecided(1, 1, t(0), data_completion, "decided", hashlib.sha256(document).hexdigest(), 0),
    )


def rollback_of(undone: int, requested: int) -> bytes:
    return encode_rollback_metadata(
        RollbackMetadata(
            start_rollback_time=t(requested),
            time_taken_ms=1,
            rolled_back=((t(undone), "deltacommit"),),
            partitions=(),
        )
    )


def test_our_compaction_that_is_archived_before_its_action_ended_is_no_surprise() -> None:
    archived, shown = [name(1, 2), name(3, 8, "commit")], [name(9, 10)]
    before = seen(*archived[:1], *shown, start=t(1), newest=t(10))
    assert looked(shown, before, archived).foreign == (name(3, 8, "commit"),)
    ours = decided_service(ServiceKind.COMPACT_DATA, t(3), b"", t(8))
    services = {ServiceKind.COMPACT_DATA: ours}
    assert looked(shown, before, archived, services=services).surprises == ()
    planned_alone = {ServiceKind.COMPACT_DATA: OpenService(ours.planned)}
    assert looked(shown, before, archived, services=planned_alone).foreign == (name(3, 8, "commit"),)


@pytest.mark.parametrize(
    ("dead", "requested", "ours"),
    [((4,), 7, True), ((4, 5), 7, True), ((5,), 7, False), ((4,), 6, False), ((4,), 5, False)],
)
def test_our_rollback_of_a_dead_write_is_no_surprise(
    dead: tuple[int, ...], requested: int, ours: bool
) -> None:
    """It was requested after the decision, and undoes what was decided on. Any other one is a surprise."""
    storage, rollback = InMemoryStorage(), name(requested, 9, "rollback")
    storage.create(f".hoodie/timeline/{rollback}", rollback_of(4, requested))
    plan = msgspec.json.encode(DeadInstants(tuple(map(t, dead))))
    action = decided_service(ServiceKind.ROLLBACK, t(5), plan, t(6))
    storage.create("decided", msgspec.json.encode(DecidedService(ServiceKind.ROLLBACK, t(5), plan)))
    state = FoldState(seen=seen(start=t(1)), services={ServiceKind.ROLLBACK: action})
    found = look(storage, load_timelines(storage), state)
    assert (found.harmless, found.foreign) == (((rollback,), ()) if ours else ((), (rollback,)))
    assert found.forget_stamps is not ours
    services = {ServiceKind.ROLLBACK: action}
    told = {"decided": storage.read("decided"), rollback: rollback_of(4, requested)}
    archived = looked([name(20, 21)], seen(name(20, 21), start=t(1)), [rollback], told, services=services)
    assert archived.surprises == (() if ours else (rollback,))


@pytest.mark.parametrize(
    ("word", "content", "harmless"),
    [
        ("commit", encode_commit_metadata(CommitMetadata(operation_type="COMPACT", compacted=True)), True),
        ("deltacommit", encode_commit_metadata(CommitMetadata(operation_type="LOG_COMPACT")), True),
        ("deltacommit", encode_commit_metadata(CommitMetadata(operation_type="UPSERT")), False),
        ("replacecommit", encode_commit_metadata(CommitMetadata(operation_type="COMPACT")), False),
        ("commit", encode_commit_metadata(CommitMetadata(operation_type=None)), False),
        ("commit", b"", False),
        ("rollback", b"cut", False),
    ],
)
def test_what_another_engine_archived_before_anybody_saw_it_may_move_no_key(
    word: str, content: bytes, harmless: bool
) -> None:
    archived, start = name(3, 4, word), seen(name(9, 10), start=t(3), newest=t(10))
    found = looked([name(9, 10)], start, [archived], {archived: content})
    assert found.surprises == (() if harmless else (archived,))
    assert found.forget_stamps is not harmless


def test_a_rollback_of_our_void_attempt_may_be_archived_before_anybody_saw_it() -> None:
    rollback, shown = name(5, 6, "rollback"), [name(9, 10)]
    for undone, harmless in [(4, True), (3, False)]:
        found = looked(
            shown,
            seen(*shown, start=t(3)),
            [rollback],
            {rollback: rollback_of(undone, 5)},
            voided=(VoidedAttempt(1, 1, t(4)),),
        )
        assert found.surprises == (() if harmless else (rollback,))


def test_a_ledger_without_identities_takes_over_what_it_had_handled_alone() -> None:
    found = looked([name(1, 2), name(3, 4)], None, handled=t(2))
    assert (found.known, found.foreign, found.forget_stamps) == ((name(1, 2),), (name(3, 4),), False)
    assert looked([name(1, 2), name(3, 4)], None, handled=t(4)).foreign == ()


@pytest.mark.parametrize("handled", [False, True])
def test_what_no_rewind_takes_into_account_yet_stays_to_be_told(handled: bool) -> None:
    """An entry that a harmless compaction asks for may neither forget what was undone nor see what is new."""
    found = TimelineLook(
        start=t(1),
        foreign=(name(7, 8),),
        undone=(name(3, 4),),
        harmless=(name(5, 6, "commit"),),
        removed=(name(1, 2), name(3, 4)),
        forget_stamps=True,
        known=None,
        moved=False,
    )
    (entry,) = found.entries(4, handled)
    assert set(entry.added) == {name(5, 6, "commit"), *([name(7, 8)] if handled else [])}
    assert set(entry.removed) == {name(1, 2), *([name(3, 4)] if handled else [])}
    assert (entry.term, entry.start, entry.anew) == (4, t(1), False)


def test_rollbacks_name_instants_that_may_not_be_chosen_again() -> None:
    storage = InMemoryStorage()
    for number, target in [(5, t(1)), (6, t(7)), (8, "20200101000000")]:
        plan = RollbackPlan(instant_to_rollback=target, action="deltacommit", requests=())
        path = f".hoodie/timeline/{t(number)}.rollback.requested"
        storage.create(path, encode_rollback_plan(plan))
    rollbacks, timelines = Rollbacks(storage), load_timelines(storage)
    assert rollbacks.naming(timelines, t(7)) == t(6)
    assert rollbacks.naming(timelines, t(5)) is None
    assert rollbacks.named(timelines) == {t(1), t(7)}, "nobody chooses 14 digits"


def test_a_completed_rollback_that_nobody_can_read_is_refused_by_name() -> None:
    storage = InMemoryStorage()
    file = f".hoodie/timeline/{name(1, 2, 'rollback')}"
    storage.create(file, b"")
    timelines = load_timelines(storage)
    with pytest.raises(CorruptFileError, match=re.escape(file)):
        Rollbacks(storage).naming(timelines, t(9))
