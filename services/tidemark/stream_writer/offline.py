"""The functions of the writer that the command line uses. Apart from the command that becomes the writer's
process, the command line imports no other module of the writer.

`tidemark config check` and `tidemark doctor` run the checks that the writer itself runs before it starts
Spark. `tidemark archive` makes the archive for executors.
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
    """Checks the section `spark:` by itself. Raises EngineSettingError."""
    session_settings(section, (), Path("spark"))


def check_kafka_settings(section: Mapping[str, str]) -> None:
    """Checks what the writer needs of the section `kafka:`. Raises EngineSettingError."""
    java_settings(section)


def rehearse_start(config: TableConfigFile) -> None:
    """Checks both sections together with this machine's environment and files. Raises EngineSettingError."""
    check_spark_settings(config.spark)
    check_kafka_settings(config.kafka.settings)
    master = read_master(config.spark)
    if not master.is_local:
        cluster.check_surroundings(master, config.spark, os.environ)
        cluster.with_certificates(config.kafka.settings)


def write_archive(target: Path, dependencies: bool) -> int:
    """Writes the archive with the Python code that executors need, and returns its size in bytes.

    `dependencies` adds the installed packages. Raises EngineSettingError, OSError.
    """
    return executor_archive.write_archive(target, dependencies=dependencies)
