"""Reads a table's YAML file. Everything that can be known to be wrong without a broker or a table is found
here.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from stream_runtime.config.decode import decode_section, pass_through, reject_unknown_keys
from stream_runtime.config.environment import fill_references, hide_references
from stream_runtime.config.errors import ConfigError, Problems
from stream_runtime.config.input_checks import check_input
from stream_runtime.config.model import (
    EpochConfig,
    IndexConfig,
    InputConfig,
    InputPartitioning,
    KafkaSection,
    LimitsConfig,
    ServicesConfig,
    StateConfig,
    TableConfig,
    TableConfigFile,
    TelemetryConfig,
    VerifyConfig,
)
from stream_runtime.config.security_model import SecurityConfig, check_security
from stream_runtime.config.spark_master import check_spark

_LANES_DEFAULT_MAX: Final = 8
_INPUT_PARTITIONS_DEFAULT: Final = 4
_FILE_BYTES_MAX: Final = 1 << 20
_NODES_MAX: Final = 100_000
# What a dead letter has beside the record's key and value: its headers, at most 64 KiB, and ours.
_LETTER_MARGIN_BYTES: Final = 128 << 10
_SECTIONS: Final[Mapping[str, type[Any]]] = {
    "table": TableConfig,
    "input": InputConfig,
    "state": StateConfig,
    "epoch": EpochConfig,
    "verify": VerifyConfig,
    "telemetry": TelemetryConfig,
    "services": ServicesConfig,
    "limits": LimitsConfig,
    "security": SecurityConfig,
}
_PASS_THROUGH: Final = ("kafka", "spark", "hoodie")


def load_config(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> TableConfigFile:
    """Reads and checks one file; `env` None means the process environment.

    Raises ConfigError naming the file, the key path and what to do, of everything that is wrong.
    """
    file = Path(path).expanduser().resolve()
    document = _parse(file, os.environ if env is None else env)
    problems = Problems(str(file))
    # Of a section whose name is misspelt it is enough to say that.
    misspelt = reject_unknown_keys(problems, file, "", document, [*_SECTIONS, *_PASS_THROUGH]) - set(document)
    sections: dict[str, Any] = {
        name: None if name in misspelt else decode_section(problems, file, name, type_, document.get(name))
        for name, type_ in _SECTIONS.items()
    }
    through: dict[str, dict[str, str]] = {}
    for name in (each for each in _PASS_THROUGH if each not in misspelt):
        with problems.gathered():
            through[name] = pass_through(file, name, document.get(name))
    _check(problems, file, sections, through)
    problems.raise_if_any()
    return TableConfigFile(
        file=file,
        kafka=KafkaSection(through["kafka"]),
        spark=through["spark"],
        hoodie=through["hoodie"],
        **sections,
    )


def _check(
    problems: Problems, file: Path, sections: dict[str, Any], through: Mapping[str, Mapping[str, str]]
) -> None:
    """Fills in what follows from other keys, and notes what does not fit together; what rests on a section
    that could not be read is left out.
    """
    table, input_, limits, security = (sections[name] for name in ("table", "input", "limits", "security"))
    if table is not None:
        with problems.gathered():
            _check_schema(file, table)
        with problems.gathered():
            sections["table"] = table = dataclasses.replace(table, index=_with_lanes(file, table.index))
            if input_ is not None:
                sections["input"] = input_ = _with_partitions(file, input_, table.index.lanes)
    if table is not None and input_ is not None:
        with problems.gathered():
            check_input(file, input_, table)
    if limits is not None:
        with problems.gathered():
            _check_limits(file, limits)
    if security is not None:
        with problems.gathered():
            check_security(file, security)
    if "kafka" in through and not through["kafka"].get("bootstrap.servers"):
        with problems.gathered():
            raise ConfigError(str(file), "kafka.bootstrap.servers", "is required: host:port, or embedded")
    if "spark" in through:
        with problems.gathered():
            check_spark(file, through["spark"])


def _parse(file: Path, env: Mapping[str, str]) -> dict[str, Any]:
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
        composed = yaml.compose(hidden, Loader=yaml.SafeLoader)
        _reject_bombs(composed)
        _reject_repeated_keys(composed)
        tree = yaml.safe_load(hidden)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(str(file), "", f"is no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise ConfigError(
            str(file), "", "must hold a mapping with the sections table, input, kafka and state"
        )
    filled: dict[str, Any] = fill_references(tree, references, env, str(file))
    return filled


def _reject_bombs(root: Any) -> None:
    """Aliases of aliases make a file of a kilobyte stand for billions of values, and one may hold itself."""
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
            children = [each for pair in node.value for each in pair]
        sizes[id(node)] = total = 1 + sum(map(size, children))
        if total > _NODES_MAX:
            raise yaml.YAMLError(f"its aliases stand for more than {_NODES_MAX} values")
        return total

    size(root)


def _reject_repeated_keys(node: Any) -> None:
    """YAML lets the last of two equal keys win; in a configuration that is a mistake."""
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


def _with_lanes(file: Path, index: IndexConfig) -> IndexConfig:
    lanes = index.lanes or min(index.shards, _LANES_DEFAULT_MAX)
    if lanes > index.shards:
        raise ConfigError(
            str(file),
            "table.index.lanes",
            f"{lanes} lanes need at least as many shards, and there are {index.shards}",
        )
    return dataclasses.replace(index, lanes=lanes)


def _with_partitions(file: Path, config: InputConfig, lanes: int) -> InputConfig:
    by_shard = config.partitioning is InputPartitioning.SHARD
    partitions = config.partitions or (lanes if by_shard else _INPUT_PARTITIONS_DEFAULT)
    if by_shard and partitions != lanes:
        raise ConfigError(
            str(file),
            "input.partitions",
            f"must equal the {lanes} lanes when producers partition by shard: leave it out",
        )
    return dataclasses.replace(config, partitions=partitions)


def _check_schema(file: Path, table: TableConfig) -> None:
    try:
        schema = json.loads(table.schema.read_text("utf-8"))
        fields = [field["name"] for field in schema["fields"]]
        if schema["type"] != "record":
            raise TypeError("not a record")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            str(file), "table.schema", f"{table.schema} holds no Avro record schema ({error})"
        ) from None
    wanted = [
        ("record_key", table.record_key),
        ("partition", table.partition),
        ("ordering", (table.ordering,)),
    ]
    for key, names in wanted:
        for name in names:
            # A dotted name reaches into a nested record; its first part must be a field of the table.
            if name is not None and name.split(".")[0] not in fields:
                raise ConfigError(
                    str(file),
                    f"table.{key}",
                    f"{table.schema.name} has no field {name}; it has {', '.join(fields)}",
                )


def _check_limits(file: Path, limits: LimitsConfig) -> None:
    smaller_first = [
        ("key_bytes", limits.key_bytes, "message_bytes", limits.message_bytes),
        ("record_bytes", limits.record_bytes, "message_bytes", limits.message_bytes),
        ("batch_bytes", limits.batch_bytes, "message_bytes", limits.message_bytes),
        (
            "transaction_interval",
            limits.transaction_interval_ms,
            "transaction_timeout",
            limits.transaction_timeout_ms,
        ),
    ]
    if limits.record_bytes + _LETTER_MARGIN_BYTES > limits.message_bytes:
        raise ConfigError(
            str(file),
            "limits.record_bytes",
            f"must be at least {_LETTER_MARGIN_BYTES >> 10} KiB below limits.message_bytes: a record that is "
            "refused goes to the dead letters with its headers and the reason",
        )
    for name, value, bound_name, bound in smaller_first:
        if value >= bound:
            raise ConfigError(str(file), f"limits.{name}", f"must be below limits.{bound_name}")
