"""`python -m tidemark.commit_coordinator.verification.child TABLE --answer FILE`: one verification in a
process of its own.

The answer is a JSON document: `report.document`, or {"error": text}. Progress goes to stderr. The process
runs at low priority, and waits between readings as `tidemark verify` does. Exit code 0: the table agrees; 1:
it does not; 2: not decided.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.table_verification.remembering import verify_and_remember
from tidemark.table_verification.report import document

AGREES: Final = 0
DIFFERS: Final = 1
UNDECIDED: Final = 2
_NICE: Final = 10


def main(clock: Clock, arguments: Sequence[str] | None = None) -> int:
    """Verifies the table, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="verification", description="Verify a table once.")
    parser.add_argument("table", help="the table's location")
    parser.add_argument("--answer", type=Path, required=True, help="where the JSON document goes")
    parser.add_argument("--full", action="store_true", help="read everything")
    options = parser.parse_args(arguments)
    os.nice(_NICE)
    try:
        result = verify_and_remember(open_storage(options.table), options.full, _say, clock.sleep)
    except (HudiFormatError, OSError) as error:
        _say(str(error))
        _put(options.answer, {"error": str(error)})
        return UNDECIDED
    _put(options.answer, document(result))
    return AGREES if result.agrees else DIFFERS


def _put(path: Path, answer: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(path)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(SystemClock()))
