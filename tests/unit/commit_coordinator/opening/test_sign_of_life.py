"""Whether a coordinator serves a folder, as another process sees it, without two machines' clocks."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.terms import begin_term
from tidemark.commit_coordinator.offline.watch import WATCHED_S, is_served
from tidemark.commit_coordinator.opening import sign_of_life
from tidemark.commit_coordinator.opening.sign_of_life import SIGN, SignOfLife
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.storage.local import LocalStorage


class Watch(ManualClock):
    """What happens to the table while a command watches it."""

    def __init__(self, *happens) -> None:
        super().__init__()
        self.happens = list(happens)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.happens:
            self.happens.pop(0)()


def nothing() -> None: ...


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_a_table_that_nobody_ever_served_is_not_watched(storage: LocalStorage):
    clock = Watch()
    assert not is_served(storage, clock)
    assert clock.monotonic_s() == 0


def test_a_change_tells_that_it_is_served(storage: LocalStorage):
    sign, told = SignOfLife(begin_term(storage), "coordinator-a"), []
    sign.change()
    clock = Watch(nothing, nothing, sign.change)
    assert is_served(storage, clock, lambda: told.append("waits"))
    assert (clock.monotonic_s(), told) == (3, ["waits"])


def test_who_was_killed_changes_nothing(storage: LocalStorage):
    SignOfLife(begin_term(storage), "coordinator-a").change()
    clock = Watch()
    assert not is_served(storage, clock)
    assert clock.monotonic_s() == WATCHED_S


def test_who_ends_meanwhile_does_not_serve(storage: LocalStorage):
    SignOfLife(begin_term(storage), "coordinator-a").change()
    assert not is_served(storage, Watch(nothing, lambda: storage.delete(SIGN)))


def test_it_changes_until_its_end_and_leaves_nothing(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sign_of_life, "CHANGES_EVERY_S", 0.01)
    changed = threading.Event()
    with SignOfLife(begin_term(storage), "coordinator-a"):
        first = _content(storage, changed)
        while _content(storage, changed) == first:
            assert not changed.wait(0.01)
    assert not storage.exists(SIGN)


def _content(storage: LocalStorage, pause: threading.Event) -> bytes:
    for _ in range(6_000):
        if storage.exists(SIGN):
            return bytes(storage.read(SIGN))
        pause.wait(0.01)
    raise AssertionError("no sign of life in a minute")


def test_whose_term_ended_writes_nothing_and_leaves_the_successors(storage: LocalStorage):
    former = SignOfLife(begin_term(storage), "coordinator-a")
    successor = begin_term(storage, 2)
    with pytest.raises(FencedOutError):
        former.change()
    SignOfLife(successor, "coordinator-b").change()
    with former:
        pass
    assert bytes(storage.read(SIGN)) == b"coordinator-b 1"
