"""Failpoints: named places at which a crash test can end, freeze or fail a process.

Each service lists its places in a `StrEnum` and gives that to its registry. An environment variable of the
process arms them, several separated by commas:

    TIDEMARK_FAILPOINT=NAME[:NTH][:ACTION],…

NTH is the hit that acts, counted from 1 (the default). ACTION is one of:

- `exit` (the default) ends the process at once with code 77, like a crash: nothing is flushed or closed;
- `stop` freezes the process (SIGSTOP) until it gets SIGCONT;
- `raise` raises FailpointHitError, for tests within one process.

Before it acts, a failpoint writes the line `failpoint NAME: ACTION` to stderr, by which a test knows that it
was hit.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError

EXIT_CODE: Final = 77
ENVIRONMENT_VARIABLE: Final = "TIDEMARK_FAILPOINT"


class FailpointHitError(StreamRuntimeError):
    """The armed action of a failpoint was to raise."""

    kind = ErrorKind.RETRYABLE


class FailpointConfigError(StreamRuntimeError):
    """TIDEMARK_FAILPOINT names no known place, count or action."""

    kind = ErrorKind.INVALID


class FailpointAction(Enum):
    EXIT = "exit"
    STOP = "stop"
    RAISE = "raise"


def _exit() -> None:
    os._exit(EXIT_CODE)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(slots=True)
class _Armed:
    nth: int
    action: FailpointAction
    hits: int = 0


class FailpointRegistry:
    """The failpoints of one service. Unarmed hits cost a dictionary look-up. Thread-safe."""

    def __init__(
        self,
        places: type[StrEnum],
        exit_process: Callable[[], None] = _exit,
        stop_process: Callable[[], None] = _stop,
    ) -> None:
        self._places = places
        self._armed: dict[str, _Armed] = {}
        self._lock = threading.Lock()
        self._effects: dict[FailpointAction, Callable[[], None]] = {
            FailpointAction.EXIT: exit_process,
            FailpointAction.STOP: stop_process,
        }

    @classmethod
    def from_environment(
        cls, places: type[StrEnum], env: Mapping[str, str], foreign: frozenset[str] = frozenset()
    ) -> FailpointRegistry:
        """A registry armed as `env` says.

        `foreign` are the names of other services' places. They are skipped, because all processes of a table
        get the same variable. Raises FailpointConfigError.
        """
        registry = cls(places)
        for order in filter(None, env.get(ENVIRONMENT_VARIABLE, "").split(",")):
            name, _, rest = order.partition(":")
            if name not in foreign:
                registry._arm_by_text(order, name, rest)
        return registry

    def _arm_by_text(self, order: str, name: str, rest: str) -> None:
        nth, action = 1, FailpointAction.EXIT
        for part in filter(None, rest.split(":")):
            if part.isdigit():
                nth = int(part)
            elif part in {known.value for known in FailpointAction}:
                action = FailpointAction(part)
            else:
                raise FailpointConfigError(
                    f"{ENVIRONMENT_VARIABLE}={order}: {part!r} is neither a count nor exit, stop or raise"
                )
        names = [place.value for place in self._places]
        if name not in names:
            raise FailpointConfigError(
                f"{ENVIRONMENT_VARIABLE}={order}: there is no failpoint {name!r}; known: {', '.join(names)}"
            )
        self.arm(self._places(name), nth, action)

    def arm(self, place: StrEnum, nth: int = 1, action: FailpointAction = FailpointAction.RAISE) -> None:
        """Arms `place`: its `nth` hit from now acts, once. Raises FailpointConfigError for `nth` below 1."""
        if nth < 1:
            raise FailpointConfigError(f"failpoint {place.value}: hits are counted from 1, not {nth}")
        with self._lock:
            self._armed[place.value] = _Armed(nth, action)

    def hit(self, place: StrEnum) -> None:
        """Does nothing, unless this is the armed hit. Raises FailpointHitError for the action `raise`."""
        if not self._armed:
            return
        name = place.value
        with self._lock:
            armed = self._armed.get(name)
            if armed is None:
                return
            armed.hits += 1
            if armed.hits < armed.nth:
                return
            del self._armed[name]
        # Not through a buffered stream: the process may end before it is flushed.
        os.write(2, f"failpoint {name}: {armed.action.value}\n".encode())
        effect = self._effects.get(armed.action)
        if effect is None:
            raise FailpointHitError(f"failpoint {name}")
        effect()
