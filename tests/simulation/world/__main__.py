"""Runs seeds in parallel, shrinks what fails, replays scripts.

python -m tests.simulation.world run --first 0 --count 100000 --jobs 2 [--keep-going N] [--no-shrink]
    [--kind global|services|refusals|partitioned] [--objects]
python -m tests.simulation.world show SEED          the script of a seed; [--kind …] [--objects]
python -m tests.simulation.world replay FILE        a script; - for standard input
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.simulation.world.drawn import drawn
from tests.simulation.world.generate import generate
from tests.simulation.world.report import describe
from tests.simulation.world.script import parse
from tests.simulation.world.seeds import Write, report, run_range, without_folders
from tests.simulation.world.serviced import with_refusals, with_services
from tests.simulation.world.with_partitioned import partitioned
from tests.simulation.world.world import run_script
from tidemark.stream_runtime.clock import SystemClock

KINDS: Final[Mapping[str, Write]] = {
    "usual": drawn,
    "global": generate,
    "services": with_services,
    "refusals": with_refusals,
    "partitioned": partitioned,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.world")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--first", type=int, default=int(os.environ.get("TIDEMARK_SEED", "0")))
    run.add_argument("--count", type=int, default=1 if "TIDEMARK_SEED" in os.environ else 100_000)
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    run.add_argument("--keep-going", type=int, default=1, metavar="N", help="stop after N failures")
    run.add_argument("--no-shrink", action="store_true")
    show = commands.add_parser("show")
    show.add_argument("seed", type=int)
    for command in (run, show):
        command.add_argument("--kind", choices=tuple(KINDS), default="usual", help="which world a seed has")
        command.add_argument("--objects", action="store_true", help="over a store without folders")
    replay = commands.add_parser("replay")
    replay.add_argument("file")
    options = parser.parse_args(arguments)
    if options.command == "replay":
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
        script = parse(text)
        outcome = run_script(script)
        sys.stdout.write(describe(script, outcome) + "\n")
        return 1 if outcome.violations else 0
    write = KINDS[options.kind]
    write = partial(without_folders, write) if options.objects else write
    if options.command == "show":
        sys.stdout.write(write(options.seed).text())
        return 0
    failed = run_range(
        options.first,
        options.count,
        options.jobs,
        options.keep_going,
        sys.stdout,
        SystemClock(),
        write,
    )
    for text in report(failed[: options.keep_going], not options.no_shrink, write):
        sys.stdout.write(f"\n{text}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
