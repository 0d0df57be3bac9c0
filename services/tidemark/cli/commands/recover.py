"""`tidemark recover`: finishes or rolls back what a dead coordinator left open, and frees the table's
lock.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidemark.console.arguments import Commands, add_command
from tidemark.console.output import Output
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

if TYPE_CHECKING:
    from tidemark.config import TableConfigFile


def add(commands: Commands) -> None:
    """Adds the command."""
    add_command(
        commands,
        "recover",
        run_recover,
        "finish a decided epoch and free the table's lock when no coordinator will come back",
        "  tidemark recover -c flights.yaml\n\n"
        "A coordinator does the same when it starts. The command refuses while a coordinator answers at\n"
        "services.coordinator. It does not ask other addresses: a coordinator that serves the table at\n"
        "another one is fenced, commits nothing more, and ends with code 3.",
    )


def run_recover(options: argparse.Namespace) -> int:
    """Recovers the table. Exit code 1 while a coordinator answers, or while another writer holds the lock."""
    use_arrow_alone()
    from tidemark.cli.reachable_kafka import has_kafka, reachable_kafka
    from tidemark.commit_coordinator.offline.recovery import recover
    from tidemark.config import load_config
    from tidemark.console.errors import CliError
    from tidemark.hudi_format.storage.locate import open_storage
    from tidemark.stream_runtime.clock import SystemClock
    from tidemark.stream_runtime.ids import SystemIds
    from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
    from tidemark.stream_runtime.rpc.health import is_serving
    from tidemark.stream_runtime.security.client import client_security

    output, clock, loaded = Output(options.json), SystemClock(), load_config(options.config)
    if not has_kafka(loaded):
        return _never_ran(loaded, output)
    with reachable_kafka(loaded, clock, output.say, "tidemark recover") as config:
        at = config.services.coordinator
        if at.port and is_serving(at, security=client_security(config)):
            raise CliError(f"a coordinator serves at {at}: it recovers the table by itself. Stop it first")
        client = ConfluentKafkaClient.from_config(config, clock=clock)
        done = recover(config, client, open_storage(config.table.path), clock, SystemIds())
    lines = [
        f"epoch {done.finished} finished" if done.finished is not None else "no epoch was decided",
        *(f"attempt at epoch {epoch} rolled back" for epoch in done.voided),
        *(f"service action {number} ended" for number in done.services),
        "the table's lock is free",
    ]
    output.answer(
        {
            "finished_epoch": done.finished,
            "rolled_back_epochs": list(done.voided),
            "ended_services": list(done.services),
            "lock_free": True,
        },
        lines,
    )
    return 0


def _never_ran(config: TableConfigFile, output: Output) -> int:
    """The answer for a table whose embedded Kafka was never started: no ledger, so nothing was decided.
    Raises CliError when the table has a pending commit or a held lock nevertheless: then its state folder was
    lost.
    """
    from tidemark.console.errors import CliError
    from tidemark.hudi_format.publication.locate import read_lock
    from tidemark.hudi_format.storage.locate import open_storage
    from tidemark.hudi_format.table_config import PROPERTIES_PATH
    from tidemark.hudi_format.timeline import WRITTEN, load_timeline

    storage = open_storage(config.table.path)
    if storage.exists(PROPERTIES_PATH):
        pending = load_timeline(storage).pending(*WRITTEN)
        if pending or read_lock(storage) is not None:
            what = f"commit {pending[0].requested} is pending" if pending else "its lock is held"
            raise CliError(
                f"{config.state.path} (state.path) has no embedded Kafka: there is no ledger to finish by, "
                f"but {what}: if the folder was lost, `tidemark table adopt -c {config.file} --new-ledger` "
                "frees the table"
            )
    output.answer(
        {"finished_epoch": None, "rolled_back_epochs": [], "lock_free": True},
        [f"nothing to recover: no `tidemark run` was ever active on {config.state.path} (state.path)"],
    )
    return 0
