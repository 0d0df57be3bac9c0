"""The door through which the command line comes in, which imports nothing else of the writer: what the writer
asks of the configuration and of its machine before it starts Spark, for `tidemark config check` and `tidemark
doctor`, by the checks of the start itself; and the archive for executors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidemark.config import TableConfigFile
from tidemark.stream_writer import cluster, executor_archive
from tidemark.stream_writer.java_kafka import java_settings
from tidemark.stream_writer.job import read_master, session_settings


def check_spark_settings(section: Mapping[str, str]) -> None:
    """Of `spark:` alone. Raises EngineSettingError."""
    session_settings(section, (), Path("spark"))


def check_kafka_settings(section: Mapping[str, str]) -> None:
    """Of `kafka:` alone. Raises EngineSettingError."""
    java_settings(section)


def rehearse_start(config: TableConfigFile) -> None:
    """With this machine's environment and files. Raises EngineSettingError."""
    check_spark_settings(config.spark)
    check_kafka_settings(config.kafka.settings)
    master = read_master(config.spark)
    if not master.is_local:
        cluster.check_surroundings(master, config.spark, os.environ)
        cluster.with_certificates(config.kafka.settings)


def write_archive(target: Path, dependencies: bool) -> int:
    """What executors on other machines need of Python, as a file; returns its bytes. Raises as
    `executor_archive.write_archive`.
    """
    return executor_archive.write_archive(target, dependencies=dependencies)
