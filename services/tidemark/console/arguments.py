"""Builds the commands' parsers, and reads the types of argument that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TypeAlias

from tidemark.config.model import Address
from tidemark.config.values import BadValueError, duration_ms, host_and_port

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Handler: TypeAlias = Callable[[argparse.Namespace], int]


def add_command(
    commands: Commands,
    name: str,
    handler: Handler,
    help_text: str,
    examples: str = "",
    *,
    config: bool = True,
    json: bool = True,
) -> argparse.ArgumentParser:
    """Adds a command and returns its parser. `name` is the whole name ("epoch list"). `help_text` is the
    command's line in the list of commands and the beginning of its help page; `handler` runs the command and
    returns its exit code. `config` and `json` add the options -c, --token-file and --json.
    """
    parser = commands.add_parser(
        name.split()[-1],
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if config:
        parser.add_argument("-c", "--config", required=True, metavar="F", help="the table's YAML file")
        parser.add_argument(
            "--token-file",
            metavar="F",
            help="file with your token (default: TIDEMARK_TOKEN_FILE, TIDEMARK_TOKEN, security.token)",
        )
    if json:
        parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    parser.set_defaults(handler=handler, command_name=name)
    return parser


def add_group(commands: Commands, name: str, help_text: str) -> Commands:
    """Adds a command that has only subcommands, and returns the place for those."""
    parser = commands.add_parser(name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def duration(text: str) -> int:
    """Milliseconds of `60s`, `500ms` or `2m`; a plain number is seconds. Raises ArgumentTypeError."""
    try:
        return duration_ms(f"{text}s" if re.fullmatch(r"\d+(\.\d+)?", text) else text)
    except BadValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def address(text: str) -> Address:
    """The address in `127.0.0.1:9100`; port 0 means any free port. Raises ArgumentTypeError."""
    try:
        return Address(*host_and_port(text))
    except BadValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """A reader of whole numbers from `low` to `high`, both included."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return read
