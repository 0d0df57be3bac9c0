"""What benchmarks that print lines and write a document have in common: progress, a folder, the report."""

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
    work = Path(tempfile.mkdtemp(prefix=f"tidemark-{name}-", dir=options.work))
    try:
        found = measure(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(lines(found)))
