"""The long kill campaign: `make chaos`, or `python -m tests.chaos --help`; see docs/chaos.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.chaos.campaign import ChaosError, Round, Settings
from tests.chaos.faults import FAULTS
from tests.chaos.schedule import catalogue, endless

TABLE_TYPES = ("merge_on_read", "copy_on_write")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="no step begins after this (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of schedule and records (default 1)")
    parser.add_argument("--steps", type=int, default=12, help="steps with one table (default 12)")
    parser.add_argument("--faults", default="", help=f"only these, by commas, of: {', '.join(FAULTS)}")
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="always as many (default: every third 3)")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies all deadlines (default 1)")
    parser.add_argument("--spark", action="store_true", help="Hudi on Spark reads beside hudi-rs")
    parser.add_argument("--no-spark", action="store_true", help="a writer without Spark: faster, less real")
    parser.add_argument("--dir", type=Path, default=Path("chaos"), help="where tables and logs go (./chaos)")
    return parser.parse_args()


def main() -> int:
    """0 when every check held; 1 with what did not, its seed and where its logs lie."""
    chosen = options()
    # As Ctrl-C does: processes and mounts of the round go first.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    end_s = time.monotonic() + chosen.minutes * 60
    total: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    number = 0
    while time.monotonic() < end_s:
        number += 1
        nodes = chosen.brokers or (3 if number % 3 == 0 else 1)
        folder = chosen.dir.absolute() / f"round-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        seed = chosen.seed + number - 1
        settings = Settings(
            folder,
            seed,
            TABLE_TYPES[number % 2],
            nodes,
            chosen.patience,
            hudi_on_spark=chosen.spark,
            no_spark=chosen.no_spark,
        )
        say(f"== round {number}: seed {seed}, {settings.table_type}, {nodes} brokers, in {folder}")
        try:
            total += one_round(settings, chosen, end_s, ends)
        except ChaosError as error:
            say(f"FAILED: {error}\nagain: python -m tests.chaos --seed {seed} (and the same options)")
            say(f"faults before it: {dict(total)}")
            return 1
        shutil.rmtree(folder, ignore_errors=True)
    say(f"== {number} rounds, {sum(total.values())} faults, every check held: {dict(total)}")
    say(f"ends that nobody provoked: {dict(ends) or 'none'}")
    return 0


def one_round(
    settings: Settings, chosen: argparse.Namespace, end_s: float, ends: Counter[str]
) -> Counter[str]:
    """The faults that were done, by kind."""
    only = set(filter(None, chosen.faults.split(",")))
    with Round(settings, say) as world:
        every = catalogue(settings.nodes, world.disks.keys(), settings.no_spark)
        orders = [order for order in every if not only or order.fault in only]
        steps = endless(Random(settings.seed), orders)
        for _ in range(chosen.steps):
            if time.monotonic() >= end_s:
                break
            world.run(next(steps))
        world.finish()
        for role, found in world.exits().items():
            for what, count in found.items():
                say(f"ended unprovoked: {role} {count} x {what}")
                ends[f"{role} {what}"] += count
        return world.counts


if __name__ == "__main__":
    sys.exit(main())
