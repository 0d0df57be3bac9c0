"""Searches seeds for each planted bug, and shrinks the first that shows it to a script.

python -m tests.simulation.planted [--first 0] [--count 400] [--kind usual] [--write] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from tests.simulation.planted.all_bugs import BUGS
from tests.simulation.planted.mutant import SCRIPTS, Planted
from tests.simulation.world.__main__ import KINDS
from tests.simulation.world.seeds import Write
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import run_script

_RUNS_MAX: Final = 60


def main() -> int:
    """Returns the exit code: 1 when a bug was found by no seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BUGS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--kind", choices=tuple(KINDS), default="usual", help="which world a seed has")
    parser.add_argument("--write", action="store_true", help="keep the shrunk script")
    options = parser.parse_args()
    missed = 0
    for bug in [BUGS[name] for name in options.names or BUGS]:
        seeds = range(options.first, options.first + options.count)
        missed += not _search(bug, seeds, KINDS[options.kind], options.write)
    return 1 if missed else 0


def _search(bug: Planted, seeds: range, drawn: Write, keeps: bool) -> bool:
    others: list[str] = []
    for tried, seed in enumerate(seeds, 1):
        script = drawn(seed)
        outcome = bug.run(script)
        if not outcome.violations:
            continue
        if not bug.is_found(outcome) or run_script(script).violations:
            others.append(f"{seed}: {outcome.violations[0][:200]}")
            continue
        _say(f"{bug.name}: seed {seed}, after {tried}: {outcome.violations[0][:200]}")
        if keeps:
            short, _ = shrink(script, bug.run, _RUNS_MAX)
            (SCRIPTS / f"{bug.name}.txt").write_text(short.text())
        return True
    _say(f"{bug.name}: in none of {len(seeds)} seeds; other violations: {others[:5] or 'none'}")
    return False


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
