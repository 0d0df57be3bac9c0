"""What is done when, from a seed alone: the short schedule of `make test` (`must`, then `more`), the endless
one of `make chaos`, and one fault of each kind.

A step is one to three faults at the same time, on different parts. After each step the stream has to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.chaos.cluster import ASSIGNERS, COORDINATOR, MERGER, SERVICES, WRITER
from tests.chaos.cuts import CUTS
from tidemark.commit_coordinator.failpoints import OF_A_ROLLBACK, SERVICE_FAILPOINTS, CoordinatorFailpoint
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.stream_writer.failpoints import WriterFailpoint

_COORDINATOR_POINTS: Final = [
    point.value for point in CoordinatorFailpoint if point not in SERVICE_FAILPOINTS
]
NEED_ANOTHER_FAULT: Final = frozenset(
    {
        CoordinatorFailpoint.AFTER_TICKETS_REVOKED,
        CoordinatorFailpoint.IN_TAKE_BACK,
    }
)
"""Nothing that is decided is taken back in a campaign without another fault: the simulation dies there
(`tests/simulation/test_deaths_of_services.py`).
"""
_SERVICE_POINTS: Final = sorted(SERVICE_FAILPOINTS - NEED_ANOTHER_FAULT)
"""Table services pass these all the time, each kind its own, or compactions are void because a stray worker
says that they failed, or a write is rolled back because another engine's writer is dead.
"""
OF_A_COMPACTION: Final = sorted(
    set(_SERVICE_POINTS)
    - OF_A_ROLLBACK
    - {CoordinatorFailpoint.BEFORE_SERVICE_VOIDED, CoordinatorFailpoint.AFTER_SERVICE_VOIDED}
)
"""A compaction of data passes all of these from its plan to its end, so a table that is written comes to each
of them every few commits.
"""
DRAWN: Final = 2
"""The coordinator dies at so many of these in each short campaign, and the writer at one of its own."""
_MERGE_POINTS: Final = [point.value for point in WriterFailpoint if point.value.startswith("merges_")]
_ASSIGNER_POINTS: Final = [point.value for point in AssignerFailpoint]
_DRIVER_POINTS: Final = [point.value for point in WriterFailpoint if point.value.startswith("writer_")]
_TASK_POINTS: Final = [point.value for point in WriterFailpoint if point.value.startswith("first_")]
_CUTS: Final = tuple(CUTS)
# Milliseconds, and after how many seconds of the process: an hour early or late, at once or in mid-life.
_SKEWS: Final = ("3600000", "-3600000", "3600000@8", "-3600000@8")
# With services a coordinator's clock is never early: a clean would delete at once what readers are to keep,
# and the right clock would decide no action for an hour, until it has passed the instants of the early one.
_LATE: Final = tuple(skew for skew in _SKEWS if skew.startswith("-"))
_ANYTHING: Final = "table"
_ON_THE_WRITER: Final = (
    "kill-spark",
    "freeze-spark",
    "first-attempts-fail",
    "second-writer",
    "lose-checkpoint",
)


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
        if self.fault in _ON_THE_WRITER:
            return WRITER
        if self.fault == "restart-kafka" or (self.fault, self.target) == ("full-disk", "kafka"):
            return "kafka"
        if self.fault == "full-disk":
            return self.target
        return self.target.partition(">")[0].partition(":")[0]

    @property
    def point(self) -> str:
        """The failpoint; empty where there is none."""
        if self.fault == "freeze-coordinator-at":
            return self.target
        return self.target.partition(":")[2] if self.fault in ("exit-at", "freeze-at") else ""

    @property
    def points(self) -> list[str]:
        """Each failpoint: one life after the other may end at several, and tasks have some of their own."""
        if self.fault == "first-attempts-fail":
            return [self.target]
        return list(filter(None, self.point.split(",")))

    @property
    def kind(self) -> tuple[str, ...]:
        """Alike for what differs only in which assigner, in the failpoint, or in what is cut off: one of
        each kind is every fault on every role, each way of a cut, each way of a clock.
        """
        name, _, how = self.target.partition(":")
        role = name.partition(">")[0].partition("-")[0]
        if self.fault in ("exit-at", "freeze-at"):
            return self.fault, role
        if self.fault == "freeze-coordinator-at":
            return (self.fault,)
        if self.fault == "cut":
            return self.fault, name.partition(">")[2], how
        if self.fault == "skew-clock":
            return self.fault, how
        return self.fault, role, how


Step = tuple[Order, ...]
# Never while the table's disk is full: the files of that writer need room.
_DEAD_WRITE: Final = Order("dead-write", _ANYTHING)


def catalogue(
    nodes: int,
    disks: Collection[str],
    no_spark: bool = False,
    services: bool = False,
    separate: bool = False,
) -> list[Order]:
    """Every fault on everything, once. `nodes`: of Kafka; `disks`: those that can be filled; `services`: the
    table is compacted, cleaned and archived meanwhile; `separate`: in a process of their own.
    """
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
        orders += [Order("freeze-spark", what) for what in ("jvm", "workers", "all")]
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
    if services:
        orders.append(_DEAD_WRITE)
        orders += [Order("exit-at", f"{COORDINATOR}:{point}") for point in _SERVICE_POINTS]
        orders += [Order("freeze-coordinator-at", point) for point in _SERVICE_POINTS]
        orders += _faults_of_merges(separate)
    skews = [(COORDINATOR, skew) for skew in (_LATE if services else _SKEWS)]
    skews += [(name, skew) for name in ASSIGNERS for skew in _SKEWS]
    orders += [Order("skew-clock", f"{name}:{skew}") for name, skew in skews]
    return orders


def _faults_of_merges(separate: bool) -> list[Order]:
    """Of whoever merges for table services: the writer, which has its other faults anyway, or `MERGER`."""
    if not separate:
        return [Order("exit-at", f"{WRITER}:{point}") for point in _MERGE_POINTS]
    orders = [Order(fault, MERGER) for fault in ("kill", "freeze")]
    orders += [
        Order(fault, f"{MERGER}:{point}") for fault in ("exit-at", "freeze-at") for point in _MERGE_POINTS
    ]
    return orders + [Order("cut", f"{MERGER}>{COORDINATOR}:{cut}") for cut in _CUTS]


def endless(random: Random, orders: Sequence[Order]) -> Iterator[Step]:
    """All of `orders` in another order each time, one to three at once."""
    while True:
        left = list(orders)
        random.shuffle(left)
        while left:
            yield _step_of(left, random.choice((1, 1, 2, 2, 3)))


def once(random: Random, orders: Sequence[Order]) -> Iterator[Step]:
    """One drawn order of each kind in `orders`, one to three at once; every failpoint to die at."""
    kinds: dict[tuple[str, ...], list[Order]] = {}
    for order in orders:
        kinds.setdefault(order.kind, []).append(order)
    left = [_chained(random, same) or random.choice(same) for same in kinds.values()]
    random.shuffle(left)
    while left:
        yield _step_of(left, random.choice((1, 2, 2, 3)))


def _chained(random: Random, same: Sequence[Order]) -> Order | None:
    """All failpoints of a role, one life after the other."""
    if same[0].fault != "exit-at":
        return None
    points = [order.target.partition(":")[2] for order in random.sample(same, len(same))]
    return _exits(same[0].target.partition(":")[0], points)


def _exits(seat: str, points: Sequence[str]) -> Order:
    return Order("exit-at", f"{seat}:{','.join(points)}")


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


def must(random: Random) -> list[Step]:
    """What every change has to survive: every failpoint of a service's own process x exit (those of tasks are
    in `more`), some of those that table services pass, and one of what shows most in least time.

    Services pass theirs here while nothing has held them up: behind a full disk they pause.
    """
    points = random.sample(_ASSIGNER_POINTS, len(_ASSIGNER_POINTS))
    half = len(points) // 2
    of_coordinator = [*_COORDINATOR_POINTS, *random.sample(OF_A_COMPACTION, DRAWN)]
    of_writer = [*_DRIVER_POINTS, random.choice(_MERGE_POINTS)]
    during_commit = (
        CoordinatorFailpoint.AFTER_COMMIT_DECIDED,
        CoordinatorFailpoint.BEFORE_METADATA_COMPLETED,
        CoordinatorFailpoint.AFTER_METADATA_COMMIT,
    )
    return [
        (
            _exits(COORDINATOR, random.sample(of_coordinator, len(of_coordinator))),
            _exits("assigner-1", points[:half]),
            _exits("assigner-2", points[half:]),
        ),
        (Order("freeze-coordinator-at", random.choice(during_commit)), Order("freeze", "assigner-2")),
        (Order("restart-kafka", "1"), Order("lose-state", "assigner-2")),
        (
            _exits(WRITER, random.sample(of_writer, len(of_writer))),
            Order("cut", f"assigner-1>{COORDINATOR}:{random.choice(_CUTS)}"),
        ),
    ]


def more(random: Random, disks: Collection[str]) -> list[Step]:
    """One of everything else, in an order of the seed."""
    steps: list[Step] = [
        (
            Order("second-coordinator"),
            Order("freeze-at", f"assigner-2:{random.choice(_ASSIGNER_POINTS)}"),
            Order("second-writer"),
        ),
        (Order("kill-spark", "workers"), Order("damage-cache", "assigner-1"), _DEAD_WRITE),
        (Order("cut", f"assigner-2>kafka:{random.choice(_CUTS)}"), Order("cut", "writer>kafka:requests")),
        (
            Order("cut", f"coordinator>kafka:{random.choice(_CUTS)}"),
            Order("kill", "assigner-1"),
            Order("lose-checkpoint"),
        ),
        (Order("first-attempts-fail", f"{random.choice(_TASK_POINTS)}:exit"), Order("stray-reports")),
        (Order("skew-clock", f"{COORDINATOR}:{random.choice(_LATE)}"), Order("freeze-spark", "all")),
    ]
    if _ANYTHING in disks:
        steps.append((Order("full-disk", _ANYTHING),))
    random.shuffle(steps)
    return steps
