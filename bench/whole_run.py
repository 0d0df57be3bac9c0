"""What benchmarks that print lines and write a document have in common: options, progress, a folder, the
report.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def say(text: str) -> None:
    """Progress goes to the error output, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def command_line(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that `report` reads. ``module``: the bench's; ``description``: its text."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    work = "folder for tables and Kafka; what is made there is removed at the end"
    parser.add_argument("--work", type=Path, help=work)
    parser.add_argument("--out", type=Path, help="the report as JSON")
    return parser


def numbers(text: str) -> list[int]:
    """The numbers of an option that takes some, with commas between them."""
    return [int(number) for number in text.split(",")]


def report(
    name: str,
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Path], dict[str, Any]],
    lines: Callable[[dict[str, Any]], Iterable[str]],
) -> None:
    """Measures in a folder of its own, which is deleted, and tells what was found.

    ``options``: ``work`` is where the folder is made, ``out`` where the report goes as JSON; None: the
    system's place, and nowhere.
    """
    if options.work is not None:
        Path(options.work).mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"tidemark-{name}-", dir=options.work))
    try:
        found = measure(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(lines(found)))
