"""The long kill campaign: `make chaos`, or `python -m tests.chaos --help`; see docs/chaos.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.chaos.campaign import ChaosError, Round, Settings
from tests.chaos.faults import FAULTS
from tests.chaos.index_commands import NONE, SECONDARY
from tests.chaos.schedule import Step, catalogue, endless, once

TABLE_TYPES = ("merge_on_read", "copy_on_write")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def options() -> argparse.Namespace:
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
        "--index", choices=("global", "partitioned"), default="global", help="kind of the record index"
    )
    parser.add_argument(
        "--secondary",
        choices=SECONDARY,
        default=NONE,
        help="a secondary index that epochs keep, or that is dropped, made and repaired all the time",
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
    chosen = parser.parse_args()
    if chosen.secondary != NONE and chosen.index == "partitioned":
        parser.error("--secondary: a table with a partitioned record index can have none")
    if chosen.separate and not chosen.services:
        parser.error("--separate: only with --services")
    return chosen


def main() -> int:
    """0 when every check held; 1 with what did not, its seed and where its logs lie."""
    chosen = options()
    # As Ctrl-C does: processes and mounts of the round go first.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    end_s = time.monotonic() + chosen.minutes * 60
    plan = Plan(chosen, end_s)
    total: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    number = 0
    while not plan.is_over():
        number += 1
        nodes = chosen.brokers or (1 if chosen.each_kind_once or number % 3 else 3)
        folder = chosen.dir.absolute() / f"round-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        seed = chosen.seed + number - 1
        settings = Settings(
            folder,
            seed,
            chosen.table_type or TABLE_TYPES[number % 2],
            nodes,
            chosen.patience,
            chosen.rate,
            hudi_on_spark=chosen.spark,
            no_spark=chosen.no_spark,
            services=chosen.services,
            index=chosen.index,
            secondary=chosen.secondary,
            separate=chosen.separate or _runs_apart(chosen, number),
        )
        apart = ", services serve" if settings.separate else ""
        say(f"== round {number}: seed {seed}, {settings.table_type}, {nodes} brokers{apart}, in {folder}")
        try:
            total += one_round(settings, plan, ends)
        except ChaosError as error:
            say(f"FAILED: {error}\nagain: python -m tests.chaos --seed {seed} (and the same options)")
            say(f"faults before it: {dict(total)}")
            return 1
        shutil.rmtree(folder, ignore_errors=True)
    say(f"== {number} rounds, {sum(total.values())} faults, every check held: {dict(total)}")
    say(f"ends that nobody provoked: {dict(ends) or 'none'}")
    return 0


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
        if self._chosen.each_kind_once and self._once is None:
            self._once = list(once(random, orders))
        rest = endless(random, orders)
        for _ in range(self._chosen.steps):
            if self.is_over():
                return
            yield self._once.pop(0) if self._once is not None else next(rest)


def one_round(settings: Settings, plan: Plan, ends: Counter[str]) -> Counter[str]:
    """The faults that were done, by kind."""
    with Round(settings, say) as world:
        for step in plan.steps(world, settings):
            world.run(step)
        world.finish()
        for role, found in world.exits().items():
            for what, count in found.items():
                say(f"ended unprovoked: {role} {count} x {what}")
                ends[f"{role} {what}"] += count
        return world.counts


if __name__ == "__main__":
    sys.exit(main())
