"""A simulated process: everything it asks of the outside goes through places at which it can be cut.

A *place* is a call of storage, broker or clock, or a failpoint of the product. At the nth place from now a
process can be killed (nothing of it reaches the outside any more, `finally` blocks included), be frozen
(SIGSTOP; others run on; `thaw` lets it go on from there), or get an I/O error before or after the call.

Code runs on the caller's thread, but for a step in which the process is to be frozen: that one gets a thread
of its own, and exactly one thread runs at a time, so a run depends on its script alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar

from testing.faulty_storage import InjectedFaultError

_T = TypeVar("_T")
PLACES_KEPT: Final = 12
STEP_TIMEOUT_S: Final = 120.0


class Crashed(BaseException):
    """The process is gone. A BaseException, so that no `except Exception` of the product survives its own
    death.
    """


class Cut(Enum):
    """What happens at an armed place."""

    CRASH = "crash"
    FREEZE = "freeze"
    FAIL_BEFORE = "fail-before"
    FAIL_AFTER = "fail-after"


_FAILURES: Final = (Cut.FAIL_BEFORE, Cut.FAIL_AFTER)


class Status(Enum):
    """Where a process is in its life."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass
class _Armed:
    cut: Cut
    left: int
    word: str


class Process:
    """``name`` is unique in a world; ``trail`` holds the last places that it passed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = Status.RUNNING
        self.trail: list[str] = []
        self.passed = 0
        self.in_call = 0
        self._armed: _Armed | None = None
        self._frozen: _Frozen | None = None

    def arm(self, cut: Cut, nth: int, word: str = "") -> None:
        """Cuts at the nth place from now that has the word in its name (1: the next).

        An earlier order is forgotten.
        """
        if self.status is Status.RUNNING:
            self._armed = _Armed(cut, nth, word)

    def disarm(self) -> None:
        """Forgets what was armed."""
        self._armed = None

    @property
    def alive(self) -> bool:
        return self.status is not Status.DEAD

    def die(self) -> NoReturn:
        """What its own step does ends it. Raises Crashed."""
        self.status = Status.DEAD
        raise Crashed(self.name)

    def kill(self) -> None:
        """From here on nothing that it does has an effect; a frozen step ends."""
        self.status = Status.DEAD
        self._armed = None
        if self._frozen is not None:
            frozen, self._frozen = self._frozen, None
            frozen.go_on()

    def step(self, work: Callable[[], None]) -> None:
        """Runs ``work`` until it ends or is frozen; raises what it raises, `Crashed` excepted."""
        if self.status is not Status.RUNNING:
            return
        if self._armed is not None and self._armed.cut is Cut.FREEZE:
            self._frozen = _Frozen(work)
            self._run_frozen()
        else:
            self._guard(work)

    def thaw(self) -> None:
        """A frozen process goes on where it was cut; returns when that step has ended."""
        if self.status is Status.FROZEN:
            self.status = Status.RUNNING
            self._run_frozen()

    def _run_frozen(self) -> None:
        frozen = self._frozen
        assert frozen is not None
        if frozen.go_on():
            self._frozen = None
            if frozen.error is not None:
                self._guard(frozen.raise_error)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Crashed:
            self.status = Status.DEAD

    def place(self, text: str, writes: bool = False) -> Cut | None:
        """The process is there; returns a failure to inject, which counts the places that write to storage
        alone.

        Raises Crashed when it is (or was) killed.
        """
        if self.status is Status.DEAD:
            raise Crashed(self.name)
        if self.in_call:
            # The handler of a call runs on its caller's thread: the order waits for a step of its own.
            return None
        self.passed += 1
        self.trail.append(text)
        if len(self.trail) > PLACES_KEPT:
            del self.trail[0]
        armed = self._armed
        if armed is None or armed.word not in text or (armed.cut in _FAILURES and not writes):
            return None
        armed.left -= 1
        if armed.left > 0:
            return None
        self._armed = None
        if armed.cut is Cut.CRASH:
            self.status = Status.DEAD
            raise Crashed(self.name)
        if armed.cut is Cut.FREEZE:
            self._park()
            return None
        return armed.cut

    def _park(self) -> None:
        if self._frozen is None:
            return
        self.status = Status.FROZEN
        self._frozen.park()
        # Killed while it was frozen: a method of the other thread has changed the status meanwhile.
        if self.status == Status.DEAD:
            raise Crashed(self.name)

    def guarded(self, what: str, call: Callable[..., _T], writes: bool = False) -> Callable[..., _T]:
        """The call with a place before it; ``writes``: it may fail, on either side of its effect."""

        def gated(*args: Any, **kwargs: Any) -> _T:
            cut = self.place(f"{what} {args[0]}" if args and isinstance(args[0], str) else what, writes)
            if cut is Cut.FAIL_BEFORE:
                raise InjectedFaultError(f"injected fault before {what}")
            result = call(*args, **kwargs)
            if cut is Cut.FAIL_AFTER:
                raise InjectedFaultError(f"injected fault after {what}")
            return result

        return gated


class _Frozen:
    """One step on a thread of its own, with the baton going to and fro."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._to_step = threading.Semaphore(0)
        self._to_world = threading.Semaphore(0)
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="frozen-step", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._to_step.acquire()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self._ended = True
        self._to_world.release()

    def go_on(self) -> bool:
        """Gives the baton to the step and takes it back; whether the step has ended."""
        self._to_step.release()
        if not self._to_world.acquire(timeout=STEP_TIMEOUT_S):
            raise AssertionError("a step neither ends nor comes to a place")
        if self._ended:
            self._thread.join()
        return self._ended

    def park(self) -> None:
        """Called on the step's thread."""
        self._to_world.release()
        self._to_step.acquire()

    def raise_error(self) -> None:
        assert self.error is not None
        raise self.error
