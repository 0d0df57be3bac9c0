"""Replaces references to environment variables, `${NAME}` and `${NAME:-default}`, in a YAML text.

1. Before the YAML is parsed, references are replaced by placeholders.
2. After it is parsed, placeholders in values are replaced by the variables' values.

So a variable's value cannot change the document's structure, a reference also works inside `{…}`, and a
reference in a comment is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidemark.config.errors import ConfigError, Problems
from tidemark.config.partial import UNREAD

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PLACEHOLDER: Final = re.compile(r"TIDEMARKREFERENCE(\d+)END")


class Reference(NamedTuple):
    """One `${…}`. ``default`` None: it has none."""

    name: str
    default: str | None


def hide_references(document: str) -> tuple[str, list[Reference]]:
    """Returns the document with placeholders, and the references by the placeholders' numbers."""
    references: list[Reference] = []

    def hide(match: re.Match[str]) -> str:
        references.append(Reference(match[1], match[2]))
        return f"TIDEMARKREFERENCE{len(references) - 1}END"

    return _REFERENCE.sub(hide, document), references


def fill_references(
    problems: Problems,
    tree: Any,
    references: list[Reference],
    environment: Mapping[str, str],
    file: str,
    key_path: str = "",
) -> Any:
    """Returns the parsed document with all placeholders replaced.

    A reference without a value and a default is noted in ``problems``, and its value becomes UNREAD.
    """
    if isinstance(tree, dict):
        filled = {}
        for key, item in tree.items():
            where = f"{key_path}.{key}" if key_path else str(key)
            if isinstance(key, str) and _PLACEHOLDER.search(key):
                said = "environment references are for values, not for keys"
                problems.note(ConfigError(file, key_path, said))
                continue
            filled[key] = fill_references(problems, item, references, environment, file, where)
        return filled
    if isinstance(tree, list):
        return [
            fill_references(problems, item, references, environment, file, f"{key_path}[{index}]")
            for index, item in enumerate(tree)
        ]
    if not isinstance(tree, str):
        return tree

    def value_of(match: re.Match[str]) -> str:
        name, default = references[int(match[1])]
        # As with the shell's ":-", an empty variable takes the default, too.
        value = environment.get(name) or default
        if value is None:
            raise ConfigError(
                file,
                key_path,
                f"environment variable {name} is not set: set it, or write ${{{name}:-default}}",
            )
        return value

    value: Any = UNREAD
    with problems.gathered():
        value = _PLACEHOLDER.sub(value_of, tree)
    return value
