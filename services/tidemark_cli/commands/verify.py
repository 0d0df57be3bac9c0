"""`tidemark verify`: proof from the files alone that the record index and the rows agree."""

from __future__ import annotations

import argparse

from tidemark_cli.commands.arguments import Commands, add_command


def add(commands: Commands) -> None:
    """Adds the command."""
    add_command(
        commands,
        "verify",
        run_verify,
        "prove from the files alone that index and rows agree; exit code 1 and the differences when not",
        "  tidemark verify -c flights.yaml          may run while the table is written\n"
        "  tidemark verify -c flights.yaml --json | jq .differences",
    )


def run_verify(options: argparse.Namespace) -> int:
    """Needs no Kafka and no service."""
    from hudi_format.storage.locate import open_storage
    from stream_runtime.config import load_config
    from tidemark_cli.output import Output
    from tidemark_cli.verify.report import document, lines
    from tidemark_cli.verify.verify import verify_table

    output = Output(options.json)
    config = load_config(options.config)
    result = verify_table(open_storage(config.table.path), output.say)
    output.answer(document(result), lines(result))
    return 0 if result.agrees else 1
