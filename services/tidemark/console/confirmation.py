"""Asks before a command deletes something: it names what is deleted, and the user types the table's name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidemark.console.errors import WRONG_USE, CliError
from tidemark.console.output import printable


def confirm(table: str, deleted: Sequence[str], yes: bool) -> None:
    """Returns when the user agrees, or `yes` is set. Raises CliError when the user does not agree, or when
    stdin is no terminal, so that nobody can be asked.
    """
    if yes:
        return
    named = "; ".join(deleted)
    if not sys.stdin.isatty():
        raise CliError(
            f"this deletes {named}. Nobody can be asked here: add --yes if that is meant", WRONG_USE
        )
    sys.stderr.write(f"This deletes {printable(named)}.\nType the table's name ({table}) to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != table:
        raise CliError("not confirmed: nothing was changed")
