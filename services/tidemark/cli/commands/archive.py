"""`tidemark archive`: packs the Python code that Spark's executors need into one file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tidemark.console.arguments import Commands, add_command
from tidemark.console.output import Output

_EXAMPLES: Final = """\
  tidemark archive -o env.zip --dependencies    for executors whose Python 3.11 has no packages
  tidemark archive -o code.zip                  Tidemark's own code (the writer sends that by itself)

in the table's configuration:
  spark:
    spark.archives: /path/of/env.zip#env
    spark.executorEnv.PYTHONPATH: env
    spark.pyspark.python: /usr/bin/python3.11   as the executors' machines name it"""


def add(commands: Commands) -> None:
    """Adds the command."""
    archive = add_command(
        commands,
        "archive",
        run_archive,
        "pack the Python code that Spark's executors need into a zip file",
        _EXAMPLES,
        config=False,
    )
    archive.add_argument("-o", "--output", type=Path, required=True, metavar="F", help="the file to write")
    archive.add_argument(
        "--dependencies",
        action="store_true",
        help="add the installed packages that Tidemark's code imports (about 70 MB)",
    )


def run_archive(options: argparse.Namespace) -> int:
    """Writes the file; one that is there is replaced."""
    from tidemark.stream_writer.offline import write_archive

    size_bytes = write_archive(options.output, options.dependencies)
    path = options.output.resolve()
    Output(options.json).answer(
        {"path": str(path), "bytes": size_bytes}, [f"{path}: {size_bytes / 1e6:.1f} MB"]
    )
    return 0
