"""The side-by-side benchmark: Tidemark and Hudi on Spark do the same upserts, one after the other.

    python -m bench                          everything (about 20 minutes)
    python -m bench --quick                  a small table and few rounds, to see that it runs
    python -m bench --only tidemark,batches  one side, or some parts: tidemark, hudi; batches, latency,
                                             sustained, lookups

Each side has the machine for itself: Kafka, Spark and all services of it run, nothing of the other. Prints
what was measured; the same as JSON and as Markdown goes to bench/results/.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench import hudi_side, report, tidemark_side
from bench.conditions import conditions, load_average
from bench.tidemark_process import configuration
from bench.whole_run import say

SIDES: Final = ("tidemark", "hudi")
PARTS: Final = ("batches", "latency", "sustained", "lookups")
RESULTS: Final = Path(__file__).parent / "results"
_QUICK: Final = {
    "keys": 200_000,
    "batches": [1_000, 10_000],
    "repeat": 2,
    "latency_s": 10.0,
    "sustained_s": 10.0,
    "backlog": 300_000,
    "lookups": 1_000,
}


def _words(text: str) -> list[str]:
    words = text.split(",")
    for word in words:
        if word not in (*SIDES, *PARTS):
            raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join((*SIDES, *PARTS))}")
    return words


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; `sides` and `parts` are what `--only` leaves."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", type=_words, default=[], help="sides and parts, separated by commas")
    add("--quick", action="store_true", help="smaller in every way; figures of it compare nothing")
    add("--keys", type=int, default=1_000_000, help="rows of the table before the first batch")
    add("--batches", type=_numbers(int), default=[1_000, 10_000, 100_000], help="rows of a batch")
    add("--moves", type=_numbers(float), default=[0.0, 0.05], help="shares of the updates that move")
    add("--repeat", type=int, default=7, help="batches of each kind")
    add("--interval-ms", type=int, default=1_000, help="epoch.interval of Tidemark")
    add("--lanes", type=int, default=4, help="index.lanes of Tidemark")
    add("--rate", type=float, default=1_000.0, help="records a second for the latency")
    add("--latency-s", type=float, default=60.0, help="how long the latency is measured")
    add("--sustained-s", type=float, default=60.0, help="how long the rate is measured")
    add("--backlog", type=int, default=5_000_000, help="records that wait when the rate is measured")
    add("--lookups", type=int, default=10_000, help="random keys of one lookup")
    add("--seed", type=int, default=17452)
    add("--work", type=Path, help="folder for tables and Kafka; what is made there is removed at the end")
    add("--keep", action="store_true", help="remove nothing")
    options = parser.parse_args(argv)
    if options.quick:
        given = vars(parser.parse_args([]))
        for name, value in _QUICK.items():
            if getattr(options, name) == given[name]:
                setattr(options, name, value)
    options.sides = [side for side in SIDES if side in options.only] or list(SIDES)
    options.parts = [part for part in PARTS if part in options.only] or list(PARTS)
    return options


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both sides, one after the other; returns the report."""
    settings = configuration(f"{options.interval_ms}ms", options.lanes)
    found: dict[str, Any] = {
        "keys": options.keys,
        "repeat": options.repeat,
        "conditions": conditions(),
        "settings": {},
    }
    if "tidemark" in options.sides:
        found["tidemark"] = tidemark_side.measure(options, folder / "tidemark", settings, say)
        found["settings"]["Tidemark"] = {
            f"{section}.{key}": value
            for section, values in (("index", settings["table"]["index"]), *settings.items())
            if section in ("index", "epoch", "state", "spark")
            for key, value in values.items()
        }
    if "hudi" in options.sides and {"batches", "lookups"} & set(options.parts):
        found["hudi"] = hudi_side.measure(options, folder / "hudi", say)
        found["settings"]["Hudi"] = found["hudi"]["hudi"]
        found["settings"]["Hudi's Spark"] = found["hudi"]["spark"]
    found["load_after"] = load_average()
    return found


def _numbers(kind: Any) -> Any:
    return lambda text: [kind(each) for each in text.split(",")]


def _stop(*_: object) -> None:
    # As Ctrl-C: every process that was started is ended on the way out.
    raise KeyboardInterrupt


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, _stop)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-bench-", dir=options.work))
    try:
        found = run(options, folder)
    finally:
        if options.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    table = report.lines(found)
    steps = report.step_lines(found.get("tidemark", {}))
    RESULTS.mkdir(exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    conditions_text = report.conditions_text(found)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(f"{conditions_text}\n\n{report.as_markdown(table)}\n")
    print("\n\n".join([conditions_text, report.as_text(table), *(["\n".join(steps)] if steps else [])]))
    print(f"\nAlso in {RESULTS / name}.json and .md")


if __name__ == "__main__":
    main()
