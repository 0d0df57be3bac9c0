"""The faults. Each is a generator: it acts on the world and yields what it waits for in between.

A fault ends when what it broke is whole again; whether the stream goes on is asked after every step by the
campaign. `FAULTS` names them for the schedule and the command line.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.chaos.cluster import LEASE_S, WRITER
from tests.chaos.cuts import CUTS
from tests.chaos.dead_writes import is_pending, leave_dead_write
from tests.chaos.seat import Seat
from tests.chaos.stray_writer import StrayWriter
from tests.chaos.world import Steps, World
from tidemark.commit_coordinator.failpoints import OF_A_ROLLBACK, CoordinatorFailpoint
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.stream_runtime.clock import SKEW_VARIABLE
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, EXIT_CODE

SUPERSEDED: Final = 3
# Longer than the lease and than Kafka's limit for an open transaction.
LONG_FREEZE_S: Final = 12.0
_CLAIMS: Final = (AssignerFailpoint.SHUFFLE_CLAIM, AssignerFailpoint.ASSIGN_CLAIM)
# What a stray worker has to say for the coordinator to come there.
_FAILED: Final[Mapping[str, Callable[[StrayWriter], object]]] = {
    CoordinatorFailpoint.AFTER_VOIDED: StrayWriter.fail_open_attempt,
    CoordinatorFailpoint.AFTER_ROLLED_BACK: StrayWriter.fail_open_attempt,
    CoordinatorFailpoint.BEFORE_SERVICE_VOIDED: StrayWriter.fail_open_service,
    CoordinatorFailpoint.AFTER_SERVICE_VOIDED: StrayWriter.fail_open_service,
}

Fault = Callable[[World, str], Steps]


def kill(world: World, name: str) -> Steps:
    """kill -9 of a service; what it had started has to end by itself."""
    seat = world.cluster.seats[name]
    yield from _runs(world, name)
    family = seat.family()
    seat.kill()
    yield world.until(f"the children of {name} to end", lambda: not any(_lives(each) for each in family))
    yield world.until(f"{name} to run again", lambda: seat.pid() is not None)


def exit_at(world: World, target: str) -> Steps:
    """`target`: seat:failpoint,failpoint… One life after the other ends at the next failpoint."""
    name, _, places = target.partition(":")
    seat, wanted = world.cluster.seats[name], places.split(",")
    seat.arms.extend(f"{place}:{_hit(world, place)}" for place in wanted)
    seat.kill()
    begun = len(seat.exits)
    for number, place in enumerate(wanted):
        stray = StrayWriter(world.cluster) if place in _FAILED else None
        if place in OF_A_ROLLBACK:
            _leave_dead_write(world)

        def at_failpoint(
            count: int = number + 1, stray: StrayWriter | None = stray, place: str = place
        ) -> bool:
            if stray is not None:
                _FAILED[place](stray)
            return sum(each.code == EXIT_CODE for each in seat.exits[begun:]) >= count

        yield world.until(f"{name} to die at {place}", at_failpoint, 150.0)
        if stray is not None:
            stray.close()


def freeze_coordinator_at(world: World, place: str) -> Steps:
    """The coordinator stops at a failpoint, a successor finishes what it began, the first one wakes up."""
    cluster = world.cluster
    cluster.coordinator.arms.append(f"{place}:stop")
    cluster.coordinator.kill()
    stray = StrayWriter(cluster) if place in _FAILED else None
    seat = cluster.coordinator
    if place in OF_A_ROLLBACK:
        _leave_dead_write(world)

    def stopped() -> bool:
        if stray is not None:
            _FAILED[place](stray)
        return seat.is_stopped()

    yield world.until(f"the coordinator to stop at {place}", stopped, 150.0)
    if stray is not None:
        stray.close()
    first = cluster.replace_coordinator()
    _move_clients(world)
    yield world.next_commits(2)
    yield from _thaw_replaced(world, first)


def second_coordinator(world: World, _: str) -> Steps:
    """Two at once, both awake: the older one has to go."""
    first = world.cluster.replace_coordinator()
    yield from _thaw_replaced(world, first)


def freeze_at(world: World, target: str) -> Steps:
    """`target`: seat:failpoint. Stops there for longer than any lease and transaction, then goes on."""
    name, _, place = target.partition(":")
    seat = world.cluster.seats[name]
    seat.arms.append(f"{place}:{_hit(world, place)}:stop")
    seat.kill()
    yield world.until(f"{name} to stop at {place}", seat.is_stopped, 150.0)
    yield world.rest(LONG_FREEZE_S)
    seat.thaw()


def freeze(world: World, name: str) -> Steps:
    """SIGSTOP anywhere, for longer than any lease and transaction."""
    seat = world.cluster.seats[name]
    yield from _runs(world, name)
    seat.freeze()
    yield world.rest(LONG_FREEZE_S)
    seat.thaw()


def kill_spark(world: World, what: str) -> Steps:
    """`jvm`: Spark's driver JVM; `workers`: its Python workers and their daemon."""
    seat = world.cluster.seats[WRITER]
    yield world.until("Spark to be up", lambda: bool(spark_processes(seat.family(), what)), 120.0)
    _signal(spark_processes(seat.family(), what), signal.SIGKILL)
    yield world.rest(0.5)


def freeze_spark(world: World, what: str) -> Steps:
    """`jvm` or `workers` (see `kill_spark`), or `all`: the driver, its JVM, all Python workers."""
    seat = world.cluster.seats[WRITER]
    yield world.until("Spark to be up", lambda: bool(spark_processes(seat.family(), "workers")), 120.0)
    frozen = seat.family() if what == "all" else spark_processes(seat.family(), what)
    _signal(frozen, signal.SIGSTOP)
    yield world.rest(LONG_FREEZE_S)
    _signal(frozen, signal.SIGCONT)


def restart_kafka(world: World, node: str) -> Steps:
    """kill -9 of a broker, some seconds without it, then it comes back."""
    brokers = world.cluster.brokers
    brokers.kill(int(node))
    yield world.rest(world.random.choice((0.5, 3.0, 8.0)))
    brokers.start_node(int(node))


def cut(world: World, target: str) -> Steps:
    """`target`: part>kafka or part>coordinator, and how. Longer than a lease, then whole again."""
    where, _, how = target.partition(":")
    part, _, other = where.partition(">")
    cluster = world.cluster
    link = cluster.brokers.links[part] if other == "kafka" else cluster.links[part]
    CUTS[how](link)
    yield world.rest(world.random.choice((2.0, LEASE_S * 2.5)))
    link.heal(reset=world.random.random() < 0.5)


def full_disk(world: World, place: str) -> Steps:
    """No byte more for a while. Kafka ends by itself then, or is ended: it comes back when there is room."""
    disk, cluster = world.disks[place], world.cluster
    disk.fill()
    yield world.rest(6.0)
    disk.free()
    if place == "kafka":
        cluster.brokers.kill()
        cluster.brokers.start_node()


def damage_cache(world: World, name: str) -> Steps:
    """Bytes in every file of an assigner's RocksDB are overwritten while it is down."""
    seat, damaged = _down(world, name), 0
    for file in sorted((world.cluster.state / name).rglob("*")):
        if file.is_file() and (file.suffix == ".sst" or file.name.startswith(("MANIFEST", "CURRENT"))):
            size = file.stat().st_size
            with file.open("r+b") as opened:
                opened.seek(world.random.randrange(max(size, 1)))
                opened.write(world.random.randbytes(max(size // 4, 16)))
            damaged += 1
    if not damaged:
        raise AssertionError(f"damage-cache {name}: there is no cache below {world.cluster.state / name}")
    seat.down = False
    yield world.until(f"{name} to run again", lambda: seat.pid() is not None)


def lose_state(world: World, name: str) -> Steps:
    """All local state of a service is gone: caches, or Spark's checkpoint and scratch. A service that was
    killed a moment ago may have none yet: it gets the time to make some.
    """
    folder = world.cluster.state / name
    yield world.until(f"state in {folder}", lambda: _holds_something(folder), 120.0)
    seat = _down(world, name)
    yield world.rest(1.0)
    if not _holds_something(folder):
        raise AssertionError(f"lose-state {name}: there is no state in {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    seat.down = False
    yield world.until(f"{name} to run again", lambda: seat.pid() is not None)


def lose_checkpoint(world: World, _: str) -> Steps:
    """Spark's checkpoint disappears under the running writer."""
    folder = world.cluster.state / WRITER / "writer" / "checkpoint"
    yield world.until(f"a checkpoint in {folder}", lambda: _holds_something(folder), 120.0)
    shutil.rmtree(folder, ignore_errors=True)
    yield world.rest(1.0)


def skew_clock(world: World, target: str) -> Steps:
    """`target`: seat:skew. In the next life the wall clock is off, or becomes so; then it is right again."""
    name, _, skew = target.partition(":")
    seat = world.cluster.seats[name]
    seat.environment[SKEW_VARIABLE] = skew
    seat.kill()
    yield world.rest(12.0 if "@" in skew else 1.0)
    yield world.next_commits(2)
    yield world.recovery()
    del seat.environment[SKEW_VARIABLE]
    seat.kill()
    yield world.rest(1.0)


def fail_first_attempts(world: World, how: str) -> Steps:
    """In one life of the writer first attempts of tasks fail. `how`: the failpoint and its action."""
    seat = world.cluster.seats[WRITER]
    said, before = f"failpoint {how}\n".replace(":", ": "), seat.log_size()
    seat.environment[ENVIRONMENT_VARIABLE] = how
    seat.kill()
    yield world.rest(1.0)
    yield world.next_commits(3, 200.0)
    if said not in seat.log_since(before):
        raise AssertionError(f"first-attempts-fail {how}: {seat.log} says of no attempt that it failed")
    del seat.environment[ENVIRONMENT_VARIABLE]
    seat.kill()
    yield world.rest(1.0)


def stray_reports(world: World, _: str) -> Steps:
    """Reports of a driver that was replaced: a failure of the open attempt, twice, and once more when it is
    over; the last one has to be refused.
    """
    stray = StrayWriter(world.cluster)
    yield world.until("an open attempt", stray.fail_open_attempt, 120.0)
    yield world.next_commits(1)
    stray.repeat_last()
    stray.close()


def second_writer(world: World, _: str) -> Steps:
    """The driver freezes in whatever it does; another one takes over; then both write at the same time."""
    cluster = world.cluster
    first = cluster.seats[WRITER]
    first.freeze()
    _signal(first.family(), signal.SIGSTOP)
    second = cluster.extra_writer()
    yield world.next_commits(2, 200.0)
    _signal(first.family(), signal.SIGCONT)
    yield world.next_commits(4, 200.0)
    second.end(60.0)


def dead_write(world: World, _: str) -> Steps:
    """Another engine's writer died long ago in the middle of a write: table services have to roll it back."""
    instant = _leave_dead_write(world)
    yield world.until(
        f"the rollback of {instant}", lambda: not is_pending(world.cluster.table, instant), 180.0
    )


FAULTS: Final[Mapping[str, Fault]] = {
    "kill": kill,
    "exit-at": exit_at,
    "freeze": freeze,
    "freeze-at": freeze_at,
    "freeze-coordinator-at": freeze_coordinator_at,
    "second-coordinator": second_coordinator,
    "second-writer": second_writer,
    "stray-reports": stray_reports,
    "kill-spark": kill_spark,
    "freeze-spark": freeze_spark,
    "first-attempts-fail": fail_first_attempts,
    "restart-kafka": restart_kafka,
    "cut": cut,
    "full-disk": full_disk,
    "damage-cache": damage_cache,
    "lose-state": lose_state,
    "lose-checkpoint": lose_checkpoint,
    "skew-clock": skew_clock,
    "dead-write": dead_write,
}


def _leave_dead_write(world: World) -> str:
    """Its instant."""
    instant = leave_dead_write(world.cluster.table, world.cluster.table_type)
    world.dead_writes.add(instant)
    return instant


def _thaw_replaced(world: World, first: Seat) -> Steps:
    first.thaw()
    yield world.until("the replaced coordinator to end", lambda: first.process is None)
    code = first.exits[-1].code
    if code != SUPERSEDED:
        raise AssertionError(f"the replaced coordinator ended with {code}: {first.exits[-1].said}")


def _move_clients(world: World) -> None:
    """As a load balancer does, or not: then clients find out by themselves."""
    if world.random.random() < 0.7:
        for link in world.cluster.links.values():
            link.heal(reset=True)


def _runs(world: World, name: str) -> Steps:
    """A fault on a service that is just being started again would be none."""
    seat = world.cluster.seats[name]
    yield world.until(f"{name} to run", lambda: seat.pid() is not None)


def _hit(world: World, place: str) -> int:
    """At which hit: the first where a life may come by once only."""
    return (
        1
        if place in OF_A_ROLLBACK or place in _FAILED or place in _CLAIMS
        else world.random.choice((1, 1, 2, 3))
    )


def _down(world: World, name: str) -> Seat:
    seat = world.cluster.seats[name]
    seat.down = True
    seat.kill()
    return seat


def _holds_something(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(folder.iterdir())
    return False


def spark_processes(family: list[psutil.Process], what: str) -> list[psutil.Process]:
    """Of a writer's family (itself first) Spark's JVM (`jvm`) or its Python workers with their daemon
    (`workers`). Workers end whenever Spark has no use for them: one that has ended since is left out.
    """
    found = []
    for process in family[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if ("java" in process.name()) == (what == "jvm"):
                found.append(process)
    return found


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
