"""`tidemark verify`: proves from the files alone that the record index and the rows agree."""

from __future__ import annotations

import argparse

from tidemark.console.arguments import Commands, add_command
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "verify",
        run_verify,
        "prove from the files alone that index and rows agree; exit code 1 and the differences when not",
        "  tidemark verify -c flights.yaml          read what changed since the last time; writers may run\n"
        "  tidemark verify -c flights.yaml --full   read every file\n"
        "  tidemark verify -c flights.yaml --json | jq .differences",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="read every file, also those that were verified before and kept their names and sizes",
    )


def run_verify(options: argparse.Namespace) -> int:
    """Verifies the table. Exit code 1 when something differs. It needs no Kafka and no service."""
    use_arrow_alone()
    from tidemark.config import load_config
    from tidemark.console.output import Output
    from tidemark.hudi_format.storage.locate import open_storage
    from tidemark.stream_runtime.clock import SystemClock
    from tidemark.table_verification.remembering import verify_and_remember
    from tidemark.table_verification.report import document, lines

    output = Output(options.json)
    config = load_config(options.config)
    storage, wait = open_storage(config.table.path), SystemClock().sleep
    result = verify_and_remember(storage, options.full, output.say, wait)
    output.answer(document(result), lines(result))
    return 0 if result.agrees else 1
