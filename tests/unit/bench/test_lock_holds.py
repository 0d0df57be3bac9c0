"""Holds of a lock, and the steps under it."""

from __future__ import annotations

from bench.lock_holds import Holds, noted
from bench.noted_index_command import longest_ms


class Lock:
    """Counts; another lock of its class is noted, too."""

    taken = 0

    def acquire(self, timeout_ms: int) -> None:
        self.taken += timeout_ms

    def release(self) -> None:
        self.taken -= 1


def test_all_locks_of_a_class_are_noted_until_the_end_of_the_block() -> None:
    holds, lock = Holds(doing=("create", "looks")), Lock()
    with noted(Lock, holds):
        lock.acquire(1)
        lock.release()
        lock.acquire(1)
        holds.doing = ("create", "switches on")
        holds.step("unlisted")
        holds.step("written")
        lock.release()
    lock.acquire(1)
    lock.release()

    assert lock.taken == 0
    assert {step: len(found) for step, found in holds.found.items()} == {
        ("create", "looks"): 1,
        ("create", "switches on"): 1,
    }
    assert list(holds.steps_ms) == ["unlisted", "written", "the rest"]
    [(wall_ms, _, _)] = holds.found["create", "switches on"]
    assert sum(ms for [ms] in holds.steps_ms.values()) <= wall_ms


def test_the_longest_hold_is_that_of_any_step() -> None:
    assert longest_ms({"looks": [[3.0, 1.0, 0], [9.5, 1.0, 2]], "switches on": [[4.0, 1.0, 30]]}) == 9.5
    assert longest_ms({}) == 0.0
