"""Reads a table's YAML file, and finds all errors in it that can be found without a broker or a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tidemark.config.checks import (
    check_input,
    check_limits,
    check_partitioned,
    with_lanes,
    with_partitions,
    without_unusable_columns,
)
from tidemark.config.decode import decode_section, pass_through, reject_unknown_keys
from tidemark.config.environment import fill_references, hide_references
from tidemark.config.errors import ConfigError, Problems
from tidemark.config.model import (
    EpochConfig,
    InputConfig,
    KafkaSection,
    LimitsConfig,
    ServicesConfig,
    StateConfig,
    TableConfigFile,
    TableSection,
    TelemetryConfig,
    VerifyConfig,
)
from tidemark.config.partial import UNREAD, changed, partial
from tidemark.config.security_model import SecurityConfig, check_security
from tidemark.config.spark_master import check_spark
from tidemark.config.table_services_model import TableServicesConfig, check_table_services

_FILE_BYTES_MAX: Final = 1 << 20
_NODES_MAX: Final = 100_000
_SECTIONS: Final[Mapping[str, type[Any]]] = {
    "table": TableSection,
    "input": InputConfig,
    "state": StateConfig,
    "epoch": EpochConfig,
    "verify": VerifyConfig,
    "telemetry": TelemetryConfig,
    "services": ServicesConfig,
    "limits": LimitsConfig,
    "security": SecurityConfig,
    "table_services": TableServicesConfig,
}
_PASS_THROUGH: Final = ("kafka", "spark", "hoodie")


def load_config(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> TableConfigFile:
    """Reads and checks one file. ``env`` None: the process environment.

    Raises ConfigError, which names the file, and for everything that is wrong the key's path and what to do.
    """
    config, problems = read_config(path, env)
    problems.raise_if_any()
    return config


def read_config(
    path: str | os.PathLike[str], env: Mapping[str, str] | None = None
) -> tuple[TableConfigFile, Problems]:
    """Returns the configuration as far as it can be read, and all errors in the file.

    If there are errors, sections and keys that cannot be used are missing from the configuration
    (`partial`). Then only further checks may use it. Raises ConfigError for a file that is no YAML mapping.
    """
    file = Path(path).expanduser().resolve()
    problems = Problems(str(file))
    document = _parse(problems, file, os.environ if env is None else env)
    # A section whose name is misspelt is reported once. Its keys are not reported as missing as well.
    misspelt = reject_unknown_keys(problems, file, "", document, [*_SECTIONS, *_PASS_THROUGH]) - set(document)
    sections: dict[str, Any] = {
        name: decode_section(problems, file, name, type_, document.get(name))
        for name, type_ in _SECTIONS.items()
        if name not in misspelt
    }
    sections |= {
        name: pass_through(problems, file, name, document.get(name))
        for name in _PASS_THROUGH
        if name not in misspelt
    }
    known = {name: section for name, section in sections.items() if section is not None}
    if "kafka" in known:
        known["kafka"] = KafkaSection(known["kafka"])
    config = _checked(problems, partial(TableConfigFile, {"file": file, **known}), document)
    return config, problems


def _checked(problems: Problems, config: TableConfigFile, document: Mapping[str, Any]) -> TableConfigFile:
    """Fills in values that are derived from other keys, notes keys that do not fit together, and removes
    those.
    """
    file = config.file
    with problems.gathered():
        check_partitioned(problems, file, config.input, config.table)
    with problems.gathered():
        config = changed(config, table=without_unusable_columns(problems, file, config.table))
    with problems.gathered():
        index = with_lanes(file, config.table.index)
        config = changed(config, table=changed(config.table, index=index))
        config = changed(config, input=with_partitions(file, config.input, index.lanes))
    with problems.gathered():
        config = changed(config, input=check_input(problems, file, config.input, config.table))
    with problems.gathered():
        check_limits(problems, file, config.limits)
    with problems.gathered():
        check_security(problems, file, config.security)
    with problems.gathered():
        services = check_table_services(problems, file, config.table_services)
        config = changed(config, table_services=services)
    with problems.gathered():
        given = config.kafka.settings.get("bootstrap.servers")
        if not given and "bootstrap.servers" not in _unknown(document, "kafka"):
            raise ConfigError(str(file), "kafka.bootstrap.servers", "is required: host:port, or embedded")
    with problems.gathered():
        unknown = _unknown(document, "spark")
        config = changed(config, spark=check_spark(problems, file, config.spark, unknown))
    return config


def _unknown(document: Mapping[str, Any], name: str) -> set[str]:
    """The keys of a section whose values could not be read."""
    section = document.get(name)
    return {key for key, value in section.items() if value is UNREAD} if isinstance(section, dict) else set()


def _parse(problems: Problems, file: Path, env: Mapping[str, str]) -> dict[str, Any]:
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            str(file), "", "there is no such file: give the path of the table's YAML file"
        ) from None
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from None
    if len(raw) > _FILE_BYTES_MAX:
        raise ConfigError(
            str(file), "", f"is larger than {_FILE_BYTES_MAX} bytes: no configuration of ours is"
        )
    try:
        hidden, references = hide_references(raw.decode("utf-8"))
        tree = _tree_of(hidden)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(str(file), "", f"is no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise ConfigError(
            str(file), "", "must hold a mapping with the sections table, input, kafka and state"
        )
    filled: dict[str, Any] = fill_references(problems, tree, references, env, str(file))
    return filled


def _tree_of(text: str) -> Any:
    """The document's value. Raises YAMLError."""
    loader = yaml.SafeLoader(text)
    try:
        composed = loader.get_single_node()
        _reject_bombs(composed)
        _reject_repeated_keys(composed)
        return None if composed is None else loader.construct_document(composed)
    finally:
        loader.dispose()


def _reject_bombs(root: Any) -> None:
    """Raises YAMLError if aliases expand to too many values, or contain themselves.

    With aliases of aliases a file of a kilobyte can expand to billions of values.
    """
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) in sizes:
            if not sizes[id(node)]:
                raise yaml.YAMLError("an alias holds itself")
            return sizes[id(node)]
        sizes[id(node)] = 0
        children: list[Any] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        sizes[id(node)] = total = 1 + sum(map(size, children))
        if total > _NODES_MAX:
            raise yaml.YAMLError(f"its aliases stand for more than {_NODES_MAX} values")
        return total

    size(root)


def _reject_repeated_keys(node: Any) -> None:
    """Raises YAMLError if a mapping has a key twice. YAML takes the last one, but here it is a mistake."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _reject_repeated_keys(item)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise yaml.YAMLError(
                    f"key {key.value!r} is given twice, again in line {key.start_mark.line + 1}"
                )
            seen.add(str(key.value))
            _reject_repeated_keys(value)
