"""The long campaign: `make fuzz`, FUZZ_ARGS="--minutes 30 --seed 1000000". Prints how to replay what it
finds."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.fuzz.run import Outcome, read_mutated
from tests.fuzz.targets import targets

_SAY_EVERY_S = 30.0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, help="the first seed; the time by default, so that each run tries others"
    )
    parser.add_argument("--target", help="only targets whose name contains this")
    parser.add_argument("--count", type=int, help="as many seeds of each target, instead of a time")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else time.time_ns() // 1_000_000
    chosen = [each for each in targets() if (options.target or "") in each.name]
    if not chosen:
        parser.error(f"no target's name contains {options.target!r}")
    ends, said = time.monotonic() + 60 * options.minutes, time.monotonic()
    first, tried, kinds = seed, 0, Counter[str]()
    violations: list[Outcome] = []
    _say(f"{len(chosen)} kinds of files from seed {seed} on")
    while (seed < first + options.count) if options.count else (time.monotonic() < ends):
        for target in chosen:
            outcome = read_mutated(target, seed)
            tried += 1
            kinds["read" if outcome.kind.startswith("read") else outcome.kind] += 1
            if outcome.violation is not None:
                violations.append(outcome)
                replay = f"--target '{target.name}' --seed {seed} --count 1"
                _say(f"{target.name}: {outcome.violation}\n  again: python -m tests.fuzz {replay}")
        seed += 1
        if time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            _say(f"{tried} mutations, {len(violations)} violations")
    ended = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    _say(f"{tried} mutations ({ended}), {len(violations)} violations")
    return 1 if violations or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
