"""Reads a configuration file as it was written: the line of each value, and the environment variables it
uses.

This is only for showing; `load` decides what is effective. A key's path is a tuple of its parts, because
keys of the `kafka`, `spark` and `hoodie` sections contain dots.
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
    """Where a value comes from. ``line``: counted from 1. ``variables``: read from the environment.
    ``unset``: variables that are not set, so that the reference's default is used.
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
    """Parses the file and fills in its references. Raises ConfigError."""
    try:
        hidden, references = hide_references(file.read_text(encoding="utf-8"))
        problems = Problems(str(file))
        document = fill_references(problems, yaml.safe_load(hidden), references, env, str(file))
    except _UNREADABLE as error:
        raise _unreadable(file, error) from None
    problems.raise_if_any()
    return document


def read_origins(file: Path, env: Mapping[str, str]) -> dict[KeyPath, Origin]:
    """Key path -> origin, of every mapping and value of the file. Raises ConfigError when it is no valid
    YAML.
    """
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
    # Replaces `<<: *other` by the content of the other mapping.
    loader.flatten_mapping(node)
    for key, value in node.value:
        where = (*path, str(key.value))
        names = [references[number].name for number in _numbers(value)]
        yield (
            where,
            Origin(
                key.start_mark.line + 1,
                tuple(name for name in names if env.get(name)),
                tuple(name for name in names if not env.get(name)),
            ),
        )
        yield from _origins(loader, value, where, references, env)


def _numbers(node: Any) -> Iterator[int]:
    """Yields the numbers of the references in a value, or in a list's items."""
    if isinstance(node, yaml.ScalarNode):
        yield from (int(number) for number in _PLACEHOLDER.findall(node.value))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _numbers(item)
