"""`tidemark`: parses the command, runs it, and turns every error into one line and an exit code.

The exit codes are those of `console.errors.exit_code_of`. With TIDEMARK_DEBUG=1 errors show their traceback.
Commands import their modules when they run, so that `--help` is fast and a service does not load the code of
the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn

from tidemark.cli.commands import (
    admin,
    archive,
    completion,
    config,
    dead_letter,
    demo,
    doctor,
    epoch,
    index,
    init,
    input_topics,
    lookup,
    recover,
    run,
    services,
    table,
    table_services,
    token,
    verify,
)
from tidemark.cli.commands.completion import complete_if_asked
from tidemark.console.arguments import Commands
from tidemark.console.errors import FAILED, WRONG_USE, exit_code_of, expected_error, message_of
from tidemark.console.output import printable
from tidemark.redaction import redact_text
from tidemark.stream_runtime.platform.open_files import allow_open_files
from tidemark.stream_runtime.platform.version import installed_version
from tidemark.stream_runtime.security.local_token import TOKEN_FILE_VARIABLE

DEBUG_VARIABLE: Final = "TIDEMARK_DEBUG"
_EPILOG: Final = """\
examples:
  tidemark demo                         everything on this machine, with real data
  tidemark init --topic flights --bootstrap-servers localhost:9092
                                        write flights.yaml from what the topic holds
  tidemark doctor -c flights.yaml       is everything there that it needs?
  tidemark run -c flights.yaml          run all services of a table, until Ctrl-C
  tidemark status -c flights.yaml       show what they are doing
  tidemark verify -c flights.yaml       prove from the files alone that index and rows agree

Exit codes: 0 done, 1 failed, 2 wrong use, 3 another coordinator took the table,
4 stored data contradicts itself or is gone, 5 the port is taken.
Errors show their traceback with TIDEMARK_DEBUG=1.
"""
_GROUPS: Final = (
    demo,
    init,
    input_topics,
    config,
    doctor,
    run,
    services,
    archive,
    table,
    recover,
    admin,
    lookup,
    epoch,
    index,
    table_services,
    dead_letter,
    verify,
    token,
    completion,
)


class _Parser(argparse.ArgumentParser):
    """Prints control characters in wrong arguments as escapes: a script may pass text from outside."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="tidemark",
        description="Kafka upserts into an Apache Hudi table, exactly once, with its record index.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tidemark {installed_version()}")
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in _GROUPS:
        group.add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    parser = build_parser()
    complete_if_asked(parser)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else WRONG_USE
    if getattr(options, "token_file", None):
        os.environ[TOKEN_FILE_VARIABLE] = options.token_file
    allow_open_files()
    try:
        return int(options.handler(options))
    except KeyboardInterrupt:
        sys.stderr.write("tidemark: interrupted\n")
        return FAILED
    except BrokenPipeError:
        # The reader of our output has ended (`tidemark … | head`). Python's flush at exit would fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _report(error, options)


def _report(error: Exception, options: argparse.Namespace) -> int:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        shown = redact_text("".join(traceback.format_exception(error)))
        sys.stderr.write("\n".join(map(printable, shown.split("\n"))))
    expected = expected_error(error)
    text = message_of(error, getattr(options, "config", None))
    if not expected:
        text = (
            f"unexpected {type(error).__name__}: {text} (run again with {DEBUG_VARIABLE}=1 for the traceback)"
        )
    # The text may have keys, file names and answers from outside: control characters become escapes.
    sys.stderr.write(f"tidemark {options.command_name}: {printable(redact_text(text))}\n")
    return exit_code_of(error) if expected else FAILED


if __name__ == "__main__":
    sys.exit(main())
