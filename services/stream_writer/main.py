"""`tidemark writer -c F`: the writer service of one table."""

from __future__ import annotations

import threading

from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile
from stream_runtime.ids import SystemIds
from stream_runtime.logging import bound
from stream_writer.bootstrap import run_writer


def run(config: TableConfigFile) -> None:
    """Runs until SIGTERM or SIGINT, the running epoch finished first.

    `config` holds real addresses. Raises EngineSettingError, EngineLostError (a new process cures it),
    StreamRuntimeError, HudiFormatError.
    """
    with bound(table=config.table.name):
        run_writer(config, threading.Event(), SystemClock(), SystemIds())
