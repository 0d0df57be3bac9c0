"""The long kill campaign: `make chaos`, or `python -m tests.chaos --help`; see docs/chaos.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tests.chaos.campaign import ChaosError, Round
from tests.chaos.faults import FAULTS
from tests.chaos.index_commands import NONE, SECONDARY
from tests.chaos.index_kinds import PARTITIONED, RECORD_INDEX, kind_of, kind_of_round
from tests.chaos.schedule import Step, catalogue, endless, once
from tests.chaos.settings import Settings
from tests.chaos.tally import Tally

TABLE_TYPES = ("merge_on_read", "copy_on_write")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """`arguments`: those of the command line where they are left out."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="no step begins after this (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of schedule and records (default 1)")
    parser.add_argument("--steps", type=int, default=12, help="steps with one table (default 12)")
    parser.add_argument(
        "--each-kind-once",
        action="store_true",
        help="one fault of each kind and every failpoint to die at, however long it takes, and no more",
    )
    parser.add_argument("--rate", type=float, default=120.0, help="input records a second (default 120)")
    parser.add_argument("--faults", default="", help=f"only these, by commas, of: {', '.join(FAULTS)}")
    parser.add_argument("--points", default="", help="only failpoints whose names contain this")
    parser.add_argument("--table-type", choices=TABLE_TYPES, help="always this (default: in turn)")
    parser.add_argument(
        "--index",
        choices=RECORD_INDEX,
        help="always this kind of record index. Without this and --secondary the kinds of index take turns "
        "over five rounds: a secondary index that is remade, a partitioned record index, a secondary index "
        "that is kept, one that is remade, column stats alone. Table types change every round, every third "
        "has three brokers, `services serve` comes within four: five has no divisor in common with these, so "
        "each kind meets each of them",
    )
    parser.add_argument(
        "--secondary",
        choices=SECONDARY,
        help="always no secondary index, one that epochs keep, or one that is dropped, made and repaired all "
        "the time; with a global record index",
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="always as many (default: every third 3)")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies all deadlines (default 1)")
    parser.add_argument("--spark", action="store_true", help="Hudi on Spark reads beside hudi-rs")
    parser.add_argument("--no-spark", action="store_true", help="a writer without Spark: faster, less real")
    parser.add_argument(
        "--services",
        action="store_true",
        help="table services run meanwhile, in two rounds of four in a process of their own; faults at "
        "their steps, too",
    )
    parser.add_argument(
        "--separate", action="store_true", help="with --services: in a process of their own in each round"
    )
    parser.add_argument("--dir", type=Path, default=Path("chaos"), help="where tables and logs go (./chaos)")
    chosen = parser.parse_args(arguments)
    if chosen.secondary not in (None, NONE) and chosen.index == PARTITIONED:
        parser.error("--secondary: a table with a partitioned record index can have none")
    if chosen.separate and not chosen.services:
        parser.error("--separate: only with --services")
    return chosen


def main() -> int:
    """0 when every check held; 1 with what did not, its seed and where its logs lie."""
    chosen = options()
    # As Ctrl-C does: processes and mounts of the round go first.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began_s = time.monotonic()
    plan = Plan(chosen, began_s + chosen.minutes * 60)
    total = Tally()
    number = 0
    while not plan.is_over():
        number += 1
        settings = _settings(chosen, number)
        shutil.rmtree(settings.folder, ignore_errors=True)
        say(f"== round {number}: seed {settings.seed}, {settings.table}, in {settings.folder}")
        try:
            one_round(settings, plan, total)
        except ChaosError as error:
            say(f"FAILED: {error}\nagain: python -m tests.chaos {settings.options} (and the other options)")
            say("before it:\n" + "\n".join(total.lines()))
            return 1
        shutil.rmtree(settings.folder, ignore_errors=True)
    say(f"== {number} rounds, {sum(total.faults.values())} faults, every check held")
    say("\n".join(total.lines()))
    if never := total.never_ended(time.monotonic() - began_s, chosen.patience):
        say(f"FAILED: no action of these table services ended, which were due: {', '.join(never)}")
        return 1
    return 0


def _settings(chosen: argparse.Namespace, number: int) -> Settings:
    """Of a round, from 1 on."""
    return Settings(
        chosen.dir.absolute() / f"round-{number}",
        chosen.seed + number - 1,
        chosen.table_type or TABLE_TYPES[number % 2],
        chosen.brokers or (1 if chosen.each_kind_once or number % 3 else 3),
        chosen.patience,
        chosen.rate,
        hudi_on_spark=chosen.spark,
        no_spark=chosen.no_spark,
        services=chosen.services,
        separate=chosen.separate or _runs_apart(chosen, number),
        index=kind_of(chosen.index, chosen.secondary) or kind_of_round(number),
    )


def _runs_apart(chosen: argparse.Namespace, number: int) -> bool:
    """The second and third of four rounds, so with a table of either type. One of each kind of fault is drawn
    for the first round, and the failpoints of merges are those of one role.
    """
    return bool(chosen.services) and not chosen.each_kind_once and number % 4 in (2, 3)


class Plan:
    """Which steps come, and when it is enough."""

    def __init__(self, chosen: argparse.Namespace, end_s: float) -> None:
        self._chosen, self._end_s = chosen, end_s
        self._once: list[Step] | None = None

    def is_over(self) -> bool:
        if self._chosen.each_kind_once:
            return self._once is not None and not self._once
        return time.monotonic() >= self._end_s

    def steps(self, world: Round, settings: Settings) -> Iterator[Step]:
        """Those of one round."""
        only = set(filter(None, self._chosen.faults.split(",")))
        every = catalogue(
            settings.nodes, world.disks.keys(), settings.no_spark, settings.services, settings.separate
        )
        orders = [
            order
            for order in every
            if (not only or order.fault in only) and self._chosen.points in order.point
        ]
        random = Random(settings.seed)
        if not orders:
            raise ChaosError("these options leave no fault")
        if self._chosen.each_kind_once and self._once is None:
            self._once = list(once(random, orders))
        rest = endless(random, orders)
        for _ in range(self._chosen.steps):
            if self.is_over():
                return
            yield self._once.pop(0) if self._once is not None else next(rest)


def one_round(settings: Settings, plan: Plan, total: Tally) -> None:
    """Adds what was done to `total`."""
    began_s = time.monotonic()
    with Round(settings, say) as world:
        for step in plan.steps(world, settings):
            world.run(step)
        world.finish()
        for role, found in world.exits().items():
            for what, count in found.items():
                say(f"ended unprovoked: {role} {count} x {what}")
        total.add(world, settings, time.monotonic() - began_s)


if __name__ == "__main__":
    sys.exit(main())
