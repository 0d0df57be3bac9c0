"""Files of record keys or of values, one a line, as batches."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from tidemark.console.errors import WRONG_USE, CliError

if TYPE_CHECKING:
    import pyarrow as pa

LINE_BYTES_MAX: Final = 32_767
"""An HFile, and so an index, cannot hold longer keys."""
_MARK: Final = codecs.BOM_UTF8
"""What many programs put at the beginning of a text file; no part of the first line."""


@dataclass(frozen=True)
class LineKind:
    """What the lines of a file are. `noun`: what errors call one."""

    noun: str
    may_be_empty: bool


RECORD_KEYS: Final = LineKind("record key", may_be_empty=False)
VALUES: Final = LineKind("value", may_be_empty=True)


@contextmanager
def opened(name: str, option: str) -> Iterator[tuple[BinaryIO, str]]:
    """The file, or stdin ("-"), and what errors call it. `option`: the one that named it. Raises CliError."""
    if name == "-":
        yield sys.stdin.buffer, "stdin"
        return
    if not name:
        raise CliError(f"{option} names no file", WRONG_USE)
    if not Path(name).is_file():
        raise CliError(f"{name} is not a file", WRONG_USE)
    with Path(name).open("rb") as file:
        yield file, name


def text_batches(file: BinaryIO, name: str, kind: LineKind = RECORD_KEYS) -> Iterator[pa.StringArray]:
    """Batches of the lines, as large as one look-up takes. Raises CliError for a line that is none of `kind`,
    with its number.
    """
    import pyarrow as pa

    from tidemark.console.key_stream import BATCH_BYTES, BATCH_KEYS

    texts: list[str] = []
    size = number = 0
    while line := file.readline(LINE_BYTES_MAX + len(_MARK) + len(b"\r\n") + 1):
        number += 1
        if number == 1 and not (line := line.removeprefix(_MARK)):
            break
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if texts and (len(texts) == BATCH_KEYS or size + len(content) > BATCH_BYTES):
            yield pa.array(texts, pa.string())
            texts, size = [], 0
        texts.append(_text_of(content, name, number, kind))
        size += len(content)
    if texts:
        yield pa.array(texts, pa.string())


def _text_of(content: bytes, name: str, number: int, kind: LineKind) -> str:
    where = f"{name}, line {number}"
    if not content and not kind.may_be_empty:
        raise bad_line(where, f"is empty, and a {kind.noun} is not")
    if len(content) > LINE_BYTES_MAX:
        raise bad_line(where, f"is longer than {LINE_BYTES_MAX} bytes, which no {kind.noun} is")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise bad_line(where, f"is not UTF-8 ({error.reason} at byte {error.start})") from None


def bad_line(where: str, why: str) -> CliError:
    """The error of a line or row."""
    return CliError(f"{where} {why}", WRONG_USE)
