"""Follows the log file of a child process: passes warnings on, and keeps the file's size bounded.

The child appends to the file itself, so it never waits for the supervisor. Rotation copies the file and then
truncates it in place; the child's handle is open for appending, so its next line is the first of the emptied
file. A line that the child writes between the two steps may be lost.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 8 << 20
KEPT: Final = 2
_READ_MAX: Final = 1 << 20
_LINE_MAX: Final = 4_000
_TAIL_LINES: Final = 20
# A line that was cut at `_LINE_MAX` has no closing quote.
_MESSAGE: Final = re.compile(r"\bmessage=(\"(?:[^\"\\]|\\.)*(?:\"|\\?$)|\S+)")
_LEVEL: Final = re.compile(r"\blevel=(\w+)")
_NOTABLE: Final = re.compile(
    r"\blevel=(warning|error|critical)\b|\"level\": \"(warning|error|critical)\"|^tidemark \w+:"
)


def short_line(line: str) -> str:
    """Level and message of a log line in key=value form or JSON, as `warning: the message`; any other line as
    it is.
    """
    if line.startswith("{"):
        return _short_json(line)
    level, message = _LEVEL.search(line), _MESSAGE.search(line)
    if level is None or message is None:
        return line
    return f"{level[1]}: {_unquoted(message[1])}"


def _unquoted(text: str) -> str:
    """The text without its quotes and escapes. Never raises: other programs may write to the file, and a long
    line is cut at any place.
    """
    if not text.startswith('"'):
        return text
    for whole in (text, f'{text}"'):
        try:
            return str(json.loads(whole))
        except ValueError:
            continue
    return text.strip('"')


def _short_json(line: str) -> str:
    try:
        document = json.loads(line)
        return f"{document['level']}: {document['message']}"
    except (ValueError, KeyError, TypeError):
        return line


class ConsoleLog:
    """Calls `forward` with each line of level WARNING and above, shortened. For one thread."""

    def __init__(self, path: Path, forward: Callable[[str], None], bytes_max: int = BYTES_MAX) -> None:
        self.path = path
        self._forward = forward
        self._bytes_max = bytes_max
        self._partial = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Lines of an earlier run are not passed on; they are rotated away with the others.
        self._position = path.stat().st_size if path.exists() else 0

    def poll(self) -> None:
        """Passes on the warnings since the last call, and rotates the file if it has grown too large."""
        while self._read():
            pass
        if self._position > self._bytes_max:
            self._rotate()

    def last_lines(self) -> list[str]:
        """The last lines, to explain why a process died."""
        return list(self._tail)

    def _read(self) -> bool:
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                content = file.read(_READ_MAX)
        except FileNotFoundError:
            return False
        if not content:
            return False
        self._position += len(content)
        *lines, self._partial = (self._partial + content).split(b"\n")
        self._partial = self._partial[-_LINE_MAX:]
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:_LINE_MAX]
            self._tail.append(text)
            if _NOTABLE.search(text):
                self._forward(short_line(text))
        return True

    def _rotate(self) -> None:
        for number in range(KEPT - 1, 0, -1):
            older = self._kept(number)
            if older.exists():
                older.replace(self._kept(number + 1))
        shutil.copyfile(self.path, self._kept(1))
        with self.path.open("r+b") as file:
            file.truncate(0)
        self._position = 0

    def _kept(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
