"""Writes what a command prints: its answer to stdout (text, or one JSON document), the rest to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from tidemark.stream_runtime.logging import one_line_json


class Output:
    """The two streams of a command. With `as_json` the answer is one JSON document, and nothing else goes to
    stdout.
    """

    def __init__(
        self, as_json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr

    def answer(self, document: Any, lines: Iterable[str]) -> None:
        """Prints the command's answer: the `document` with --json, else the `lines`."""
        if self.as_json:
            self._stdout.write(one_line_json(document) + "\n")
        else:
            # Keys, names and reasons come from outside; control characters in them must not reach a terminal.
            for line in lines:
                self._stdout.write(printable(line) + "\n")
        self._stdout.flush()

    def piece(self, text: str) -> None:
        """Prints a piece of an answer that is too long to be held, as it is; on a terminal printable."""
        if self._stdout.isatty():
            text = "\n".join(map(printable, text.split("\n")))
        self._stdout.write(text)

    def say(self, text: str) -> None:
        """Prints progress: lines on stderr."""
        self._stderr.write("\n".join(map(printable, text.split("\n"))) + "\n")
        self._stderr.flush()


def printable(text: str) -> str:
    """The text with control characters as escapes, so that a terminal does not obey them: ESC becomes
    \\x1b.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """The rows as aligned lines. Columns whose numbers are in `right` (from 0) are aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(widths[number]) if number in right else cell.ljust(widths[number])
            for number, cell in enumerate(row)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
