"""`tidemark run`: runs all services of a table in the foreground."""

from __future__ import annotations

import argparse

from tidemark.console.arguments import Commands, add_command


def add(commands: Commands) -> None:
    """Adds the command."""
    add_command(
        commands,
        "run",
        run,
        "run all services of a table in the foreground; a new start continues where the last one stopped",
        "  tidemark run -c flights.yaml          Ctrl-C stops in order; a second Ctrl-C stops at once",
        json=False,
    )


def run(options: argparse.Namespace) -> int:
    """Runs until SIGINT or SIGTERM; a second signal kills the services at once. Returns 4 when a service was
    stopped for good, else 0. Raises what `Supervisor.run` raises: exit code 2 when a service cannot work with
    this configuration.
    """
    import threading

    from tidemark.cli.run.supervisor import Supervisor
    from tidemark.config import load_config
    from tidemark.console.errors import DONE, STOPPED
    from tidemark.console.output import Output
    from tidemark.stream_runtime.clock import SystemClock
    from tidemark.stream_runtime.ids import SystemIds
    from tidemark.stream_runtime.platform.signals import set_by_signals

    config = load_config(options.config)
    stop, hurry = threading.Event(), threading.Event()
    set_by_signals(stop, hurry)
    supervisor = Supervisor(config, SystemClock(), SystemIds(), Output().say)
    supervisor.run(stop, hurry)
    return STOPPED if supervisor.stopped else DONE
