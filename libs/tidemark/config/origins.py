"""A configuration file as it was written: what it says, where each value stands, and which variables of the
environment it reads.

For showing alone: what holds, `load` decides. A key's path is a tuple of its parts, since keys of the
`kafka`, `spark` and `hoodie` sections have dots of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tidemark.config.environment import Reference, fill_references, hide_references
from tidemark.config.errors import ConfigError, Problems

_PLACEHOLDER: Final = re.compile(r"TIDEMARKREFERENCE(\d+)END")
_UNREADABLE: Final = (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError)
KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """`line` counts from 1. `variables` were read from the environment; `unset` have the default that the
    reference names.
    """

    line: int
    variables: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"line {self.line}"]
        if self.variables:
            parts.append(f"environment variable {', '.join(self.variables)}")
        parts += [f"default of ${{{name}}}" for name in self.unset]
        return ", ".join(parts)


def read_document(file: Path, env: Mapping[str, str]) -> Any:
    """The parsed file with its references filled in. Raises ConfigError."""
    try:
        hidden, references = hide_references(file.read_text(encoding="utf-8"))
        problems = Problems(str(file))
        document = fill_references(problems, yaml.safe_load(hidden), references, env, str(file))
    except _UNREADABLE as error:
        raise _unreadable(file, error) from None
    problems.raise_if_any()
    return document


def read_origins(file: Path, env: Mapping[str, str]) -> dict[KeyPath, Origin]:
    """By key path, every mapping and value of the file. Raises ConfigError when it is no YAML."""
    try:
        hidden, references = hide_references(file.read_text(encoding="utf-8"))
        loader = yaml.SafeLoader(hidden)
        try:
            return dict(_origins(loader, loader.get_single_node(), (), references, env))
        finally:
            loader.dispose()
    except _UNREADABLE as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(str(file), "", "there is no such file: give the path of the table's YAML file")
    return ConfigError(str(file), "", f"cannot be read: {' '.join(str(error).split())}")


def _origins(
    loader: yaml.SafeLoader, node: Any, path: KeyPath, references: list[Reference], env: Mapping[str, str]
) -> Iterator[tuple[KeyPath, Origin]]:
    if not isinstance(node, yaml.MappingNode):
        return
    # Puts the content of `<<: *other` where it is used.
    loader.flatten_mapping(node)
    for key, value in node.value:
        where = (*path, str(key.value))
        named = [references[number] for number in _numbers(value)]
        yield (
            where,
            Origin(
                key.start_mark.line + 1,
                tuple(each.name for each in named if env.get(each.name)),
                tuple(each.name for each in named if not env.get(each.name)),
            ),
        )
        yield from _origins(loader, value, where, references, env)


def _numbers(node: Any) -> Iterator[int]:
    """The references in a value and, for a list, in its items."""
    if isinstance(node, yaml.ScalarNode):
        yield from (int(number) for number in _PLACEHOLDER.findall(node.value))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _numbers(item)
