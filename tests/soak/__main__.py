"""The soak: `make soak`, or `python -m tests.soak --help`; see docs/soak.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path

from tests.soak.bounds import MINUTES_MIN
from tests.soak.soak import Settings, Soak

_SHOWN_MAX = 20


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def minutes(text: str) -> int:
    value = int(text)
    if value < MINUTES_MIN:
        raise argparse.ArgumentTypeError(f"the rule of growth needs {MINUTES_MIN} minutes at least")
    return value


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=15, help="how long records are sent (default 15)")
    parser.add_argument("--rate", type=float, default=5_000.0, help="records a second (default 5000)")
    parser.add_argument("--keys", type=int, default=20_000, help="record keys, fixed (default 20000)")
    parser.add_argument("--seed", type=int, default=1, help="of the records (default 1)")
    parser.add_argument(
        "--retain",
        type=int,
        help="seconds that cleaned files and archived instants are kept (default: a sixth of the run)",
    )
    parser.add_argument("--no-services", action="store_true", help="table services are off")
    parser.add_argument("--curves", type=Path, help="a folder for the figures as data and as a picture")
    parser.add_argument("--dir", type=Path, default=Path("soak"), help="where all of it goes (./soak)")
    return parser.parse_args()


def main() -> int:
    """0 when everything held; 1 with what did not, the folder is left then."""
    chosen = options()
    # As Ctrl-C does: what runs is ended first.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = chosen.dir.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    say(f"== {chosen.minutes} minutes, {chosen.rate:.0f} records a second on {chosen.keys} keys, in {folder}")
    retain_s = None if chosen.no_services else chosen.retain or chosen.minutes * 10
    settings = Settings(
        folder,
        chosen.minutes,
        chosen.rate,
        chosen.keys,
        chosen.seed,
        retain_s=retain_s,
        curves=chosen.curves,
    )
    outcome = Soak(settings, say).run()
    for name, values in sorted(outcome.figures.items()):
        say(f"{name}: " + " ".join(in_mib(name, values)))
    say(f"{outcome.sent} records, {outcome.malformed} of them malformed, {outcome.commits} commits")
    if outcome.problems:
        for problem in outcome.problems[:_SHOWN_MAX]:
            say(f"FAILED: {problem}")
        say(f"{len(outcome.problems)} problems; configuration, logs, table and topics are in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    say("== everything held")
    return 0


def in_mib(name: str, values: list[float | None]) -> list[str]:
    """Bytes as MiB, anything else as it is; `-` where nothing was measured."""
    unit = 1 << 20 if name.startswith(("memory: ", "heap: ", "disk: ")) else 1
    return ["-" if value is None else f"{value / unit:.0f}" for value in values]


if __name__ == "__main__":
    sys.exit(main())
