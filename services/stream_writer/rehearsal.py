"""What the writer asks of the configuration and of its machine before it starts Spark: for `tidemark config
check` and `tidemark doctor`. The checks are those of the start itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from stream_runtime.config import TableConfigFile
from stream_writer import cluster
from stream_writer.java_kafka import java_settings
from stream_writer.job import read_master, session_settings


def check_settings(config: TableConfigFile) -> None:
    """Of `spark:` and `kafka:` alone. Raises EngineSettingError."""
    session_settings(config.spark, (), Path("spark"))
    java_settings(config.kafka.settings)


def rehearse_start(config: TableConfigFile) -> None:
    """With this machine's environment and files. Raises EngineSettingError."""
    check_settings(config)
    master = read_master(config.spark)
    if not master.is_local:
        cluster.check_surroundings(master, config.spark, os.environ)
        cluster.with_certificates(config.kafka.settings)
