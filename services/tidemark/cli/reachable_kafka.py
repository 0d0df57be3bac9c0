"""Kafka for commands that need a broker but no services: the one that runs, or the embedded one, started for
the time of the command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark.cli.run.supervised_kafka import FOLDER, SupervisedKafka
from tidemark.config import TableConfigFile
from tidemark.config.run_file import read_run_file, resolve_addresses
from tidemark.console.state_lock import state_lock
from tidemark.stream_runtime.clock import Clock


def has_kafka(config: TableConfigFile) -> bool:
    """Whether there may be topics: False for an embedded Kafka that was never started."""
    return not config.kafka.embedded or (config.state.path / FOLDER).is_dir()


@contextmanager
def reachable_kafka(
    config: TableConfigFile, clock: Clock, say: Callable[[str], None], purpose: str
) -> Iterator[TableConfigFile]:
    """The configuration with the addresses of a Kafka that runs.

    An embedded Kafka that does not run is started for the time of the block. The state folder is locked
    meanwhile, so that no `tidemark run` starts a second one; `purpose` is what such a run is told.

    Raises CliError when another process holds the state folder, PlatformError when Kafka does not start.
    """
    if not config.kafka.embedded or read_run_file(config.state.path) is not None:
        yield resolve_addresses(config)
        return
    with state_lock(config.state.path, purpose):
        say("starting the embedded Kafka")
        kafka = SupervisedKafka(config.state.path, clock, say)
        kafka.start()
        try:
            servers = config.kafka.with_bootstrap_servers(kafka.bootstrap_servers)
            yield dataclasses.replace(config, kafka=servers)
        finally:
            kafka.stop(15.0)
