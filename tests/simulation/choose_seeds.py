"""Chooses the fixed seeds of `make simulation`: few worlds that together reach every required state, rare
ones several times, so that a change of the product that costs one world its state does not fail the level.

    python -m tests.simulation.choose_seeds [--count 1000] [--jobs 2]

runs the first ``count`` seeds, of those from 1 000 to 1 599 the ones whose tables have other indexes than a
global record index (no seed below has), and writes ``fixed_seeds.txt``. To be run again where a change takes
a state away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from tests.simulation.reached_states import FIXED_SEEDS_FILE, REQUIRED
from tests.simulation.world.drawn import drawn, has_other_indexes
from tests.simulation.world.world import run_script

WITNESSES: Final = 2
"""So many chosen worlds reach a state, or all that do where there are fewer."""
SHOW_PLANTED_BUGS: Final = frozenset({3, 11, 12, 23, 91})
"""Chosen whatever they reach: each shows a planted bug that few worlds show (docs/simulation.md)."""
_WITH_OTHER_INDEXES: Final = range(1_000, 1_600)
_CHUNK: Final = 10


def choose(
    reached: Mapping[int, Collection[str]], lengths: Mapping[int, int], whatever: Collection[int] = ()
) -> list[int]:
    """Few of the seeds, in ascending order. ``reached``: the required states that each seed's world has.
    ``lengths``: how long its script is. ``whatever``: seeds that stay in any case.

    From the longest script on, each goes that no state needs. Example: two worlds reach `foreign column`,
    so both stay; of nine with another state seven may go, the longest first.
    """
    left = Counter(state for states in reached.values() for state in states)
    needed = {state: min(WITNESSES, count) for state, count in left.items()}
    chosen = set(reached)
    for seed in sorted(chosen.difference(whatever), key=lambda seed: (-lengths[seed], seed)):
        if all(left[state] > needed[state] for state in reached[seed]):
            chosen.discard(seed)
            left.subtract(reached[seed])
    return sorted(chosen)


def candidates(count: int) -> list[int]:
    """The seeds to choose from."""
    return sorted({*range(count), *SHOW_PLANTED_BUGS, *filter(has_other_indexes, _WITH_OTHER_INDEXES)})


def reached_by(seeds: Sequence[int]) -> dict[int, frozenset[str]]:
    """The required states of these seeds' worlds. Raises ValueError for a world that breaks a guarantee."""
    reached = {}
    for seed in seeds:
        outcome = run_script(drawn(seed))
        if outcome.violations:
            raise ValueError(f"seed {seed} breaks a guarantee: TIDEMARK_SEED={seed} make simulation")
        reached[seed] = REQUIRED.intersection(outcome.reached)
    return reached


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when a required state was not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.choose_seeds")
    parser.add_argument("--count", type=int, default=1_000, help="so many seeds are run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    seeds = candidates(options.count)
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    reached: dict[int, frozenset[str]] = {}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for part in pool.map(reached_by, chunks):
            reached |= part
            sys.stderr.write(f"\r{len(reached)} of {len(seeds)} worlds")
    sys.stderr.write("\n")
    lengths = {seed: len(drawn(seed).events) for seed in reached}
    chosen = choose(reached, lengths, SHOW_PLANTED_BUGS)
    FIXED_SEEDS_FILE.write_text("".join(f"{seed}\n" for seed in chosen), encoding="utf-8")
    missing = sorted(REQUIRED.difference(*(reached[seed] for seed in chosen)))
    sys.stdout.write(f"{len(chosen)} seeds in {FIXED_SEEDS_FILE.name}; not reached: {missing or 'none'}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
