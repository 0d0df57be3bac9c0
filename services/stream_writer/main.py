"""`tidemark writer -c F`: the Spark stream writer of one table."""

from __future__ import annotations

import threading
from pathlib import Path

from stream_runtime.topics import TopicNames

from hudi_format.storage.locate import open_storage
from hudi_format.table_config import read_table_config
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile
from stream_runtime.ids import SystemIds
from stream_writer.bootstrap import run_writer
from stream_writer.epoch_tasks import RUNNER, table_facts, task_planner


def run(config: TableConfigFile) -> None:
    """Runs until SIGTERM or SIGINT. Raises HudiFormatError when the table cannot be read."""
    storage = open_storage(config.table.path)
    topics = TopicNames(config.table.name)
    facts = table_facts(
        read_table_config(storage),
        str(Path(config.table.path)),
        config.kafka.settings,
        topics.data,
        topics.index,
    )
    run_writer(config, task_planner(facts), RUNNER, threading.Event(), SystemClock(), SystemIds())
