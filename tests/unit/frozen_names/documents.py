"""The keys of JSON documents as paths: `services.assign[].lanes`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

DATA_KEYED = frozenset(
    {
        "by_reason",
        "timings_ms",
        "keyed_offsets",
        "source_offsets",
        "figures",
        "refused_calls",
        "input_topics",
        "differences",
        "foreign_writer_options",
        "positions",
        "document",
        "notes",
        "counts:doctor",
        "failing",
        "stopped:status run",
    }
)
"""Keys below which the keys are data (names of lanes, reasons, steps …): `*` stands for them."""


def key_paths(document: Any, named: Collection[str] = DATA_KEYED, of: str = "") -> set[str]:
    """All paths of a document; `of` names it where a key is data in one document alone (`key:of`)."""
    return set(_paths(document, "", "", frozenset(named), of))


def _paths(document: Any, at: str, key: str, named: frozenset[str], of: str) -> Iterator[str]:
    if isinstance(document, list):
        for each in document:
            yield from _paths(each, f"{at}[]", "", named, of)
    elif isinstance(document, dict):
        is_data = key in named or f"{key}:{of}" in named
        for name, value in document.items():
            shown = "*" if is_data else name
            path = f"{at}.{shown}" if at else shown
            yield path
            inner_of = "status run" if of == "status" and name == "run" else of
            yield from _paths(value, path, "" if is_data else name, named, inner_of)
