"""`tidemark writer -c F`: the writer service of one table, in the foreground.

Exit code 0 after SIGTERM or SIGINT, 1 when it cannot go on (whoever started it starts it again), 2 for a
configuration that cannot work.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import threading
from collections.abc import Sequence
from typing import Final

from hudi_format.errors import HudiFormatError
from stream_runtime.clock import SystemClock
from stream_runtime.config import ConfigError, load_config
from stream_runtime.errors import StreamRuntimeError
from stream_runtime.ids import SystemIds
from stream_runtime.logging import bound, configure_logging
from stream_writer.bootstrap import run_writer
from stream_writer.errors import EngineSettingError, WriterError

_log: Final = logging.getLogger("tidemark.writer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until a signal or an error that only a new process can cure."""
    parser = argparse.ArgumentParser(prog="tidemark writer", description="Write a table's epochs with Spark.")
    parser.add_argument("-c", "--config", required=True, metavar="F", help="the table's YAML file")
    parser.add_argument(
        "--bootstrap-servers", metavar="S", help="where the embedded Kafka listens (`run` gives it)"
    )
    options = parser.parse_args(arguments)
    configure_logging("writer")
    try:
        config = load_config(options.config)
        if options.bootstrap_servers:
            kafka = config.kafka.with_bootstrap_servers(options.bootstrap_servers)
            config = dataclasses.replace(config, kafka=kafka)
        if config.kafka.embedded:
            raise ConfigError(
                str(config.file),
                "kafka.bootstrap.servers",
                "is embedded: `tidemark run` starts that Kafka; give --bootstrap-servers to join it",
            )
        with bound(table=config.table.name):
            run_writer(config, threading.Event(), SystemClock(), SystemIds())
    except (ConfigError, EngineSettingError) as error:
        _log.error("%s", error)
        return 2
    except (WriterError, StreamRuntimeError, HudiFormatError) as error:
        _log.error("the writer ends: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
