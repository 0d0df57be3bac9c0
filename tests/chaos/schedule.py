"""What is done when, from a seed alone: the short schedule of `make test`, the endless one of `make chaos`.

A step is one to three faults at the same time, on different parts. After each step the stream has to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from commit_coordinator.failpoints import CoordinatorFailpoint
from index_assigner.failpoints import AssignerFailpoint
from stream_writer.failpoints import WriterFailpoint
from tests.chaos.cluster import ASSIGNERS, COORDINATOR, SERVICES, WRITER
from tests.chaos.link import Cut

_COORDINATOR_POINTS: Final = [point.value for point in CoordinatorFailpoint]
_ASSIGNER_POINTS: Final = [point.value for point in AssignerFailpoint]
_DRIVER_POINTS: Final = [point.value for point in WriterFailpoint if point.value.startswith("writer_")]
_TASK_POINTS: Final = [point.value for point in WriterFailpoint if point.value.startswith("first_")]
_CUTS: Final = [cut.name.lower() for cut in Cut if cut is not Cut.NOTHING]
# Milliseconds, and after how many seconds of the process: an hour early or late, at once or in mid-life.
_SKEWS: Final = ("3600000", "-3600000", "3600000@8", "-3600000@8")
_ANYTHING: Final = "table"


@dataclass(frozen=True)
class Order:
    """One fault: its name in `faults.FAULTS`, and on what."""

    fault: str
    target: str = ""

    def __str__(self) -> str:
        return f"{self.fault} {self.target}".strip()

    @property
    def part(self) -> str:
        """What it breaks; two faults of one step never break the same."""
        if self.fault in ("freeze-coordinator-at", "second-coordinator", "stray-reports"):
            return COORDINATOR
        if self.fault in ("kill-spark", "first-attempts-fail", "second-writer", "lose-checkpoint"):
            return WRITER
        if self.fault == "restart-kafka" or (self.fault, self.target) == ("full-disk", "kafka"):
            return "kafka"
        if self.fault == "full-disk":
            return self.target
        return self.target.partition(">")[0].partition(":")[0]


Step = tuple[Order, ...]


def catalogue(nodes: int, disks: Collection[str], no_spark: bool = False) -> list[Order]:
    """Every fault on everything, once. `nodes`: of Kafka; `disks`: those that can be filled."""
    orders = [Order("kill", name) for name in SERVICES]
    orders += [Order("exit-at", f"{COORDINATOR}:{point}") for point in _COORDINATOR_POINTS]
    orders += [Order("exit-at", f"{ASSIGNERS[n % 2]}:{p}") for n, p in enumerate(_ASSIGNER_POINTS)]
    orders += [Order("exit-at", f"{WRITER}:{point}") for point in _DRIVER_POINTS]
    orders += [Order("freeze", name) for name in SERVICES]
    orders += [Order("freeze-at", f"{ASSIGNERS[n % 2]}:{p}") for n, p in enumerate(_ASSIGNER_POINTS)]
    orders += [Order("freeze-at", f"{WRITER}:{point}") for point in _DRIVER_POINTS]
    orders += [Order("freeze-coordinator-at", point) for point in _COORDINATOR_POINTS]
    orders += [Order("second-coordinator"), Order("second-writer"), Order("stray-reports")]
    if not no_spark:
        orders += [Order("kill-spark", "jvm"), Order("kill-spark", "workers"), Order("lose-checkpoint")]
    # Without Spark a task has no process of its own that could die.
    hows = ("raise",) if no_spark else ("raise", "exit")
    orders += [Order("first-attempts-fail", f"{point}:{how}") for point in _TASK_POINTS for how in hows]
    orders += [Order("restart-kafka", str(node)) for node in range(1, nodes + 1)]
    ways = [(name, COORDINATOR) for name in (*ASSIGNERS, WRITER)]
    ways += [(name, "kafka") for name in SERVICES] if nodes == 1 else []
    orders += [Order("cut", f"{part}>{other}:{cut}") for part, other in ways for cut in _CUTS]
    orders += [Order("full-disk", disk) for disk in disks if disk != "kafka" or nodes == 1]
    orders += [Order("damage-cache", name) for name in ASSIGNERS]
    orders += [Order("lose-state", name) for name in (*ASSIGNERS, WRITER)]
    skews = [(name, skew) for name in (COORDINATOR, *ASSIGNERS) for skew in _SKEWS]
    orders += [Order("skew-clock", f"{name}:{skew}") for name, skew in skews]
    return orders


def endless(random: Random, orders: Sequence[Order]) -> Iterator[Step]:
    """All of `orders` in another order each time, one to three at once."""
    while True:
        left = list(orders)
        random.shuffle(left)
        while left:
            yield _step_of(left, random.choice((1, 1, 2, 2, 3)))


def _step_of(left: list[Order], count: int) -> Step:
    """Takes the next order and as many behind it as break something else."""
    step = [left.pop(0)]
    for order in list(left):
        if len(step) >= count:
            break
        if order.part not in {each.part for each in step}:
            step.append(order)
            left.remove(order)
    return tuple(step)


def short(random: Random, disks: Collection[str]) -> list[Step]:
    """Some four minutes: every failpoint x exit, a drawn part of everything else."""

    def drawn(points: Sequence[str]) -> str:
        return ",".join(random.sample(points, len(points)))

    during_commit = ["after_commit_decided", "before_metadata_completed", "after_metadata_commit"]
    first, second = random.sample(during_commit, 2)
    steps = [
        (
            Order("exit-at", f"{COORDINATOR}:{drawn(_COORDINATOR_POINTS)}"),
            Order("exit-at", f"assigner-1:{drawn(_ASSIGNER_POINTS)}"),
        ),
        (
            Order("freeze-coordinator-at", first),
            Order("freeze-at", f"assigner-2:{random.choice(_ASSIGNER_POINTS)}"),
        ),
        (Order("exit-at", f"{WRITER}:{drawn(_DRIVER_POINTS)}"), Order("damage-cache", "assigner-1")),
        (Order("restart-kafka", "1"),),
        (
            Order("kill-spark", "workers"),
            Order("cut", f"assigner-1>{COORDINATOR}:{random.choice(_CUTS)}"),
            Order("freeze", "assigner-2"),
        ),
        (Order("second-coordinator"), Order("lose-state", "assigner-2")),
        (Order("cut", f"assigner-2>kafka:{random.choice(_CUTS)}"), Order("freeze-coordinator-at", second)),
        (Order("first-attempts-fail", f"{random.choice(_TASK_POINTS)}:exit"), Order("stray-reports")),
        (Order("skew-clock", f"{COORDINATOR}:{random.choice(_SKEWS)}"),),
    ]
    if _ANYTHING in disks:
        steps.append((Order("full-disk", _ANYTHING),))
    random.shuffle(steps)
    return steps
