"""Which pending writes have no writer any more, and which side files belong to nothing."""

from __future__ import annotations

from tests.unit.hudi_format.table_services.histories import t
from tidemark.hudi_format.table_services.dead_instants import (
    DEAD_AFTER_MS,
    LEFT_AFTER_MS,
    dead_instants,
    leftovers,
)
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline

NOW = 10**9
TIMELINE = Timeline(
    (
        Instant(t(1), Action.DELTA_COMMIT, State.COMPLETED, t(2)),
        Instant(t(3), Action.DELTA_COMMIT, State.INFLIGHT),
        Instant(t(4), Action.COMMIT, State.REQUESTED),
        Instant(t(5), Action.COMPACTION, State.INFLIGHT),
        Instant(t(6), Action.CLUSTERING, State.REQUESTED),
        Instant(t(7), Action.REPLACE_COMMIT, State.INFLIGHT),
    )
)


def dead(begun: int, beaten: int | None = None, own: tuple[str, ...] = ()) -> list[str]:
    return dead_instants(TIMELINE, own, lambda: NOW, begun_ms=lambda _: begun, beaten_ms=lambda _: beaten)


def test_writes_without_a_beat_are_dead_and_table_services_are_left_alone():
    old = NOW - DEAD_AFTER_MS - 1
    assert dead(old) == [t(3), t(4), t(7)]
    assert dead(old, beaten=old) == [t(3), t(4), t(7)]
    assert dead(old, beaten=old + 1) == [], "two beats may be missed"
    assert dead(old + 1) == [], "a write that just began has not beaten yet"
    assert dead(old, own=(t(3),)) == [t(4), t(7)]


def test_a_write_whose_requested_file_is_gone_is_not_dead():
    found = dead_instants(TIMELINE, (), lambda: NOW, begun_ms=lambda _: None, beaten_ms=lambda _: None)
    assert found == []


def test_side_files_of_no_instant_go_after_an_hour():
    ages_ms = {
        t(8): LEFT_AFTER_MS + 1,
        t(10): LEFT_AFTER_MS,
        t(3): LEFT_AFTER_MS + 1,
        "not-an-instant": LEFT_AFTER_MS + 1,
    }
    written_ms = {f".hoodie/.temp/{name}": NOW - age_ms for name, age_ms in ages_ms.items()}
    gone = f".hoodie/.temp/{t(9)}"
    left = leftovers([gone, *written_ms], [Timeline(()), TIMELINE], lambda: NOW, written_ms.get)
    assert left == (f".hoodie/.temp/{t(8)}",)


def test_the_storage_is_asked_for_its_time_before_the_files_and_only_where_there_is_a_file_to_judge():
    asked: list[str] = []

    def now_ms() -> int:
        asked.append("now")
        return NOW

    def written_ms(_: str) -> int:
        asked.append("file")
        return NOW

    none: tuple[Instant, ...] = ()
    assert dead_instants(Timeline(none), (), now_ms, begun_ms=written_ms, beaten_ms=written_ms) == []
    own = (t(3), t(4), t(7))
    assert dead_instants(TIMELINE, own, now_ms, begun_ms=written_ms, beaten_ms=written_ms) == []
    assert leftovers([f".hoodie/.temp/{t(3)}"], [TIMELINE], now_ms, written_ms) == ()
    assert asked == []
    assert dead_instants(TIMELINE, (), now_ms, begun_ms=written_ms, beaten_ms=written_ms) == []
    assert leftovers([f".hoodie/.temp/{t(8)}"], [TIMELINE], now_ms, written_ms) == ()
    assert asked == ["now", *["file"] * 6, "now", "file"], "a beat of meanwhile must not look old"
