"""docs/limits.md names every bound that a configuration has, with the default of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tidemark.config.reference import known_keys

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"
BESIDE_LIMITS = {
    "state.memory",
    "state.disk",
    "state.mapped",
    "epoch.interval",
    "epoch.max_bytes",
    "table.index.tombstone_ttl",
    "verify.timeout",
}
# `key` (default), and in a table of keys: | `key` | default |
NAMED = re.compile(r"`([a-z]+(?:\.[a-z_]+)+)`(?: \| | \()(\d\w*)(?: \||\))")


def documented(page: str) -> set[tuple[str, str]]:
    """(key, default) wherever the page names both."""
    return set(NAMED.findall(page))


def defaults() -> dict[str, str]:
    """Bounds by key, as one would write them."""
    return {
        known.path: str(known.default)
        for known in known_keys()
        if (known.section == "limits" and known.default is not None) or known.path in BESIDE_LIMITS
    }


def test_every_bound_is_named_with_the_default_of_the_code() -> None:
    assert documented(PAGE.read_text(encoding="utf-8")) == set(defaults().items())
    assert defaults().keys() >= BESIDE_LIMITS


def test_a_default_is_read_in_text_and_in_tables() -> None:
    page = "up to `limits.a_b` (4MiB), then `state.disk` rests\n| `limits.lease` | 3s | how long |\n"
    assert documented(page) == {("limits.a_b", "4MiB"), ("limits.lease", "3s")}
