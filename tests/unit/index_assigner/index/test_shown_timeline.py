"""Whether a shard may catch up from its stamp, by what the timeline shows and what the fold has seen."""

from __future__ import annotations

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.metadata_tables import write_archive
from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.timeline import load_timeline
from tidemark.index_assigner.index.shown_timeline import ShownTimeline


def t(n: int) -> str:
    return f"20260101000000{n:03d}"


def name(n: int, completion: int) -> str:
    return f"{t(n)}_{t(completion)}.deltacommit"


def shown(names: list[str], seen: list[str], stamps_from: int = 0, archived: str = "") -> ShownTimeline:
    storage = InMemoryStorage()
    for each in names:
        storage.create(f".hoodie/timeline/{each}", b"")
    if archived:
        write_archive(storage, [(archived[:17], archived[18:35], "deltacommit", b"")])
    return ShownTimeline(load_timeline(storage), Known(None, frozenset(seen), "0", 3, stamps_from))


def test_what_came_after_the_stamp_is_caught_up() -> None:
    both = [name(1, 2), name(3, 4)]
    assert shown(both, both).can_catch_up(t(2), 3)
    assert shown(both, both[:1]).can_catch_up(t(2), 3), "not seen yet, and above the stamp"
    assert not shown(both, both[:1]).can_catch_up(t(4), 3), "its stamp says nothing of what nobody has seen"


def test_a_seen_commit_that_is_gone_is_in_the_shard_and_in_nothing_that_could_take_it_out() -> None:
    both = [name(1, 2), name(3, 4)]
    assert not shown(both[:1], both).can_catch_up(t(2), 3)
    assert shown(both[1:], both, archived=both[0]).can_catch_up(t(4), 3), "archived is not gone"


def test_a_stamp_above_all_that_is_seen_and_shown_says_nothing() -> None:
    """The shard was brought to commits that this listing has not: they were undone, or it is an old one."""
    only = [name(1, 2)]
    assert shown(only, only).can_catch_up(t(2), 3)
    assert not shown(only, only).can_catch_up(t(3), 3)


def test_a_stamp_of_before_a_rewind_that_ended_stamps_says_nothing() -> None:
    only = [name(1, 2)]
    assert not shown(only, only, stamps_from=3).can_catch_up(t(2), 2)
    assert shown(only, only, stamps_from=3).can_catch_up(t(2), 3)
