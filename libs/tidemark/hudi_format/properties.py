"""Java properties text, the format of `hoodie.properties` and `.hoodie_partition_metadata`.

We write only what Hudi's own files use. We read the whole format: comments, line continuation, the three
separators, `\\uXXXX` escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tidemark.hudi_format.errors import CorruptFileError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PRINTED: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_LINE: Final = re.compile(r"((?:[^=: \t\f\\]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_PLAIN: Final = re.compile(r'["$-9;<>-\[\]-~]*')
"""What is written as it is: ASCII without spaces, and without what separates, begins a comment or escapes."""
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)


def parse_properties(text: str, path: str = "properties") -> dict[str, str]:
    """Key -> value; the last one of a repeated key wins. Raises `CorruptFileError`, which names `path`, for a
    bad \\u escape.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _LINE.match(line)
        if match is not None:
            properties[_unescape(match[1], path)] = _unescape(match[2], path)
    return properties


def format_properties(values: Mapping[str, str], comment: str) -> str:
    """One `key=value` per line, sorted by key, below a comment line. Other characters than ASCII become
    \\uXXXX.
    """
    lines = [f"#{line}" for line in comment.splitlines()]
    lines += [f"{_escape(key, is_key=True)}={_escape(value)}" for key, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[str]:
    continued = ""
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued += line[:-1]
        else:
            yield continued + line
            continued = ""
    if continued:
        yield continued


def _unescape(text: str, path: str) -> str:
    if "\\" not in text and text.isascii():
        return text

    def replacement(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise CorruptFileError(f"{path}: malformed \\u escape in {text!r}")
        return chr(int(escaped[1:], 16)) if escaped[0] == "u" else _ESCAPES.get(escaped, escaped)

    unescaped = _ESCAPED.sub(replacement, text)
    # Two \u escapes may be the two surrogates of one character above U+FFFF.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, is_key: bool = False) -> str:
    if _PLAIN.fullmatch(text):
        return text
    pieces: list[str] = []
    for position, character in enumerate(text):
        if character in _PRINTED:
            pieces.append(_PRINTED[character])
        elif character in "=:#!" or (character == " " and (is_key or position == 0)):
            pieces.append(f"\\{character}")
        elif " " <= character <= "~":
            pieces.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            pieces += [f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2)]
    return "".join(pieces)
