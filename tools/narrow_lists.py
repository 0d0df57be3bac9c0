"""A Markdown extension: what belongs to a list item is indented by two or three blanks, as CommonMark and the
repository's pages have it. Python-Markdown asks for four.
"""

from __future__ import annotations

import re
from typing import Any, Final

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

_ITEM: Final = re.compile(r"^( *)([-*+]|\d+[.)])( +)")
# Only these begin a list: a line may start with a year.
_STARTS: Final = frozenset({"-", "*", "+", "1.", "1)"})


class _Widen(Preprocessor):  # type: ignore[misc] # the library has no types
    """Indents by four per level what the item's own width holds together, and parts what Python-Markdown
    would run together: a list and the paragraph before it.
    """

    def run(self, lines: list[str]) -> list[str]:
        widths: list[int] = []
        widened: list[str] = []
        parted = True  # by an empty line since the last item began, or no item yet
        for line in lines:
            if not line.strip():
                widened.append("")
                parted = True
                continue
            indent = len(line) - len(line.lstrip(" "))
            was_within = bool(widths)
            if was_within and indent == 0 and not _ITEM.match(line) and not parted:
                # The rest of an item's paragraph, written without indentation.
                widened.append("    " * len(widths) + line)
                continue
            while widths and indent < widths[-1]:
                widths.pop()
            within = widths[-1] if widths else 0
            item = _ITEM.match(line)
            begins = item is not None and len(item[1]) <= within + 3 and (was_within or item[2] in _STARTS)
            if begins and widened and widened[-1] and (parted or not was_within):
                widened.append("")
            widened.append("    " * len(widths) + line[within:])
            if item is not None and begins:
                widths.append(len(item[0]))
                parted = False
        return widened


class NarrowLists(Extension):  # type: ignore[misc] # the library has no types
    """Runs behind the fences, whose lines are placeholders then."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the library's name
        md.preprocessors.register(_Widen(md), "narrow_lists", 15)


def makeExtension(**settings: Any) -> NarrowLists:  # noqa: N802 - the library's name
    """How Python-Markdown asks for it."""
    return NarrowLists(**settings)
