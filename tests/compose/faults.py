"""What is killed while the flights stream in, and what must have happened after each: commits go on.

`PROCESS`: kill -9, the restart policy has to bring it back. `MACHINE`: the container is killed and stays down
for a while. Where others can do without it, they have to, before it is brought back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.compose.stack import Stack, StackError

COMMIT_TIMEOUT_S: Final = 240.0
HEALTHY_TIMEOUT_S: Final = 300.0


class Kind(Enum):
    PROCESS = "process killed"
    MACHINE = "container killed"


@dataclass(frozen=True)
class Fault:
    """`spare`: the others commit while it is down."""

    service: str
    kind: Kind
    spare: bool = False


FAULTS: Final = (
    Fault("coordinator", Kind.PROCESS),
    Fault("assigner-1", Kind.MACHINE, spare=True),
    Fault("writer", Kind.PROCESS),
    Fault("spark-worker-1", Kind.MACHINE, spare=True),
    Fault("kafka", Kind.MACHINE),
    Fault("spark-master", Kind.PROCESS),
    Fault("assigner-2", Kind.PROCESS),
    Fault("coordinator", Kind.MACHINE),
)


@dataclass(frozen=True)
class Survived:
    """`seconds`: from the kill to the first commit after it (`committed`), or to an answer that nothing is
    left to commit, the feeder having sent all. `streaming`: it was still sending when the kill came.
    """

    fault: Fault
    seconds: float
    streaming: bool
    committed: bool


class Faults:
    """Kills one after the other; used by one thread."""

    def __init__(self, stack: Stack, say: Callable[[str], None]) -> None:
        self._stack = stack
        self._say = say

    def survive(self, fault: Fault) -> Survived:
        """Raises StackError when nothing is committed after it, or it does not become healthy again."""
        stack = self._stack
        before = self._committed()
        streaming = self._streaming()
        committed = False
        self._say(f"{fault.kind.value}: {fault.service}, after epoch {before}")
        killed_s = time.monotonic()
        if fault.kind is Kind.PROCESS:
            restarts = int(stack.state(fault.service)["RestartCount"])
            stack.kill_process(fault.service)
            stack.wait(
                lambda: int(stack.state(fault.service)["RestartCount"]) > restarts,
                COMMIT_TIMEOUT_S,
                lambda: f"{fault.service} was not started again after kill -9",
            )
        else:
            stack.kill_container(fault.service)
            if fault.spare:
                committed = self._wait_for_commit(before, f"while {fault.service} is down")
            stack.start_container(fault.service)
        if not fault.spare:
            committed = self._wait_for_commit(before, f"after {fault.service} was killed")
        seconds = time.monotonic() - killed_s
        stack.wait_healthy([fault.service], HEALTHY_TIMEOUT_S)
        return Survived(fault, seconds, streaming, committed)

    def _committed(self) -> int:
        """The last committed epoch, asked until somebody answers."""
        found: list[int] = []

        def known() -> bool:
            status = self._stack.status()
            if status is not None:
                found.append(committed_epoch(status))
            return bool(found)

        self._stack.wait(known, COMMIT_TIMEOUT_S, lambda: "the coordinator does not answer `tidemark status`")
        return found[-1]

    def _wait_for_commit(self, epoch: int, when: str) -> bool:
        """True: a later epoch. False: there is nothing left to commit, since the feeder has sent all."""
        last: dict[str, Any] = {}

        def gone_on() -> bool:
            status = self._stack.status()
            if status is None:
                return False
            last.update(status)
            return committed_epoch(status) > epoch or (not self._streaming() and lag(status) == 0)

        try:
            self._stack.wait(gone_on, COMMIT_TIMEOUT_S, lambda: f"nothing was committed {when}")
        except StackError as error:
            raise StackError(f"{error}; status says {last.get('warnings')}") from None
        return committed_epoch(last) > epoch

    def _streaming(self) -> bool:
        return bool(self._stack.state("feeder")["State"]["Running"])


def committed_epoch(status: dict[str, Any]) -> int:
    """Of the document of `tidemark status`; 0 before the first commit."""
    committed = status.get("last_commit") or {}
    return int(committed.get("epoch") or 0)


def lag(status: dict[str, Any]) -> int:
    """Input records that are not committed; some, while Kafka does not say."""
    return int(status["lag"]["input_offsets_not_committed"]) if status["lag"] is not None else 1
