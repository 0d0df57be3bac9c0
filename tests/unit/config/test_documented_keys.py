"""Keys of the configuration that pages, docstrings and error texts name are keys of the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tidemark.config.reference import known_keys

ROOT = Path(__file__).parents[3]
KEYS = {known.path for known in known_keys()}
SECTIONS = {known.section for known in known_keys()} | {path.rpartition(".")[0] for path in KEYS}
OF_OTHERS = {
    "security.protocol": "a setting of Kafka's clients",
    "state.next": "an attribute of a lane's state",
    "verify.log": "a file",
}
MODULES = {
    f"{file.parent.name}.{file.stem}" for root in ("libs", "services") for file in (ROOT / root).rglob("*.py")
}
"""`table_services.runner`: texts name modules by their folder."""
# In backticks, perhaps with a value: `table_services.run: separate`.
NAMED = re.compile(r"`([a-z_]+\.[a-z_]+(?:\.[a-z_]+)*)(?:: [^`]*)?`")
FILES = re.compile(r"\.(?:py|md|json|yaml|proto|lock|toml)$")


def texts() -> Iterator[Path]:
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "libs/**/*.md",
        "services/**/*.md",
        "libs/**/*.py",
        "services/**/*.py",
    ):
        yield from sorted(ROOT.glob(pattern))


def unknown(text: str) -> set[str]:
    """The names that begin like a section and are no key of it."""
    sections = {path.partition(".")[0] for path in KEYS}
    named = {name for name in NAMED.findall(text) if name.partition(".")[0] in sections}
    others = KEYS | SECTIONS | OF_OTHERS.keys() | MODULES
    return {name for name in named - others if not FILES.search(name)}


def test_every_key_that_a_page_or_a_docstring_names_is_one() -> None:
    wrong = {
        str(file.relative_to(ROOT)): found for file in texts() if (found := unknown(file.read_text("utf-8")))
    }
    assert wrong == {}


def test_a_key_that_is_none_is_found() -> None:
    assert unknown("`table_services.step` and `table_services.run: separate`") == set()
    assert unknown("as `table_services.step_ms` says") == {"table_services.step_ms"}
