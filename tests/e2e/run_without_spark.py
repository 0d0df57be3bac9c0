"""The command line but for one thing: `run` starts the writer that has no Spark (`tests.chaos.local_writer`).

What a test asks about Kafka, the coordinator, the assigner or `run` itself is answered without Spark's JVM
and its workers, too, which take more CPU to start than the rest of such a test. Files come out the same: the
tasks are the same code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tidemark.cli.entry import main
from tidemark.cli.run import supervisor

_ROOT: Final = Path(__file__).resolve().parents[2]
_PRODUCTS_COMMAND: Final = supervisor.service_command


def command_in(folder: Path) -> Path:
    """An executable in this folder, which takes the words that `tidemark` takes."""
    command = folder / "tidemark-without-spark"
    words = f'PYTHONPATH="{_ROOT}" exec "{sys.executable}" -m {__name__} "$@"'
    command.write_text(f"#!/bin/sh\n{words}\n")
    command.chmod(0o755)
    return command


def service_command(role: str, file: Path) -> list[str]:
    """As the product's, but for the writer's."""
    if role == "writer":
        return [sys.executable, "-m", "tests.chaos.local_writer", "-c", str(file)]
    return _PRODUCTS_COMMAND(role, file)


if __name__ == "__main__":
    supervisor.service_command = service_command
    sys.exit(main())
