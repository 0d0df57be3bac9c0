"""The configuration of one table: one YAML file, which is checked completely before anything starts.

A service calls `load_config(path)`; the types are in `model`.
"""

from tidemark.config.errors import ConfigError
from tidemark.config.load import load_config
from tidemark.config.model import (
    Address,
    ConfiguredIndexKind,
    ConfiguredTableType,
    DebeziumConfig,
    EpochConfig,
    IndexConfig,
    InputConfig,
    InputFormat,
    InputFraming,
    InputPartitioning,
    InputStart,
    KafkaSection,
    LimitsConfig,
    ProtobufConfig,
    SchemaRegistryConfig,
    ServicesConfig,
    StateConfig,
    TableConfigFile,
    TableSection,
    UnknownFields,
)

__all__ = [
    "Address",
    "ConfigError",
    "ConfiguredIndexKind",
    "ConfiguredTableType",
    "DebeziumConfig",
    "EpochConfig",
    "IndexConfig",
    "InputConfig",
    "InputFormat",
    "InputFraming",
    "InputPartitioning",
    "InputStart",
    "KafkaSection",
    "LimitsConfig",
    "ProtobufConfig",
    "SchemaRegistryConfig",
    "ServicesConfig",
    "StateConfig",
    "TableConfigFile",
    "TableSection",
    "UnknownFields",
    "load_config",
]
