"""`tidemark coordinator`, `assigner`, `writer`: one service in the foreground, as containers run them.

TIDEMARK_FAILPOINT may name failpoints of several services at once. So each service gets the names of the
others' failpoints, to ignore them; any other name is an error.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Final

from tidemark.config import TableConfigFile, load_config
from tidemark.config.run_file import resolve_addresses
from tidemark.console.arguments import Commands, add_command, address
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.platform.loading import without_collections

STAGES: Final = ("shuffle", "assign")


def add(commands: Commands) -> None:
    """Adds the three services."""
    coordinator = add_command(
        commands,
        "coordinator",
        run_coordinator,
        "run the commit coordinator of a table in the foreground",
        "  tidemark coordinator -c flights.yaml\n"
        "  tidemark coordinator -c flights.yaml --http 127.0.0.1:9100",
        json=False,
    )
    assigner = add_command(
        commands,
        "assigner",
        run_assigner,
        "run one index-assigner in the foreground; any number of them may share a table's lanes",
        "  tidemark assigner -c flights.yaml\n"
        "  tidemark assigner -c flights.yaml --stages assign     only tag; other assigners shuffle",
        json=False,
    )
    assigner.add_argument(
        "--stages",
        type=stages,
        default=STAGES,
        metavar="S,S",
        help="shuffle, assign, or both separated by a comma (default: both)",
    )
    writer = add_command(
        commands,
        "writer",
        run_writer,
        "run the Spark writer of a table in the foreground",
        "  tidemark writer -c flights.yaml",
        json=False,
    )
    coordinator.add_argument(
        "--web",
        type=address,
        metavar="HOST:PORT",
        help="serve the web page here (default: services.web)",
    )
    for service in (coordinator, assigner, writer):
        add_process_options(service, "services.http" if service is coordinator else "nowhere")


def add_process_options(service: argparse.ArgumentParser, default: str) -> None:
    """Adds what all services take; `default` says where metrics are served without the option."""
    service.add_argument(
        "--http",
        type=address,
        metavar="HOST:PORT",
        help=f"serve /metrics (Prometheus) and /healthz here (default: {default})",
    )
    service.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="how log lines on stderr are written (default: telemetry.log_format, else text)",
    )


def stages(text: str) -> tuple[str, ...]:
    """The stages that the text names, shuffle before assign. Raises ArgumentTypeError."""
    named = [part.strip() for part in text.split(",")]
    unknown = [part for part in named if part not in STAGES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no stage: use {' or '.join(STAGES)}, or both")
    return tuple(stage for stage in STAGES if stage in named)


def run_coordinator(options: argparse.Namespace) -> int:
    """Runs the coordinator until SIGTERM or SIGINT."""
    with without_collections():
        use_arrow_alone()
        from tidemark.commit_coordinator.main import run
        from tidemark.index_assigner.failpoints import AssignerFailpoint
        from tidemark.stream_writer.failpoints import WriterFailpoint

    foreign = frozenset(AssignerFailpoint) | frozenset(WriterFailpoint)
    config = _service_config(options, "coordinator")
    if options.web is not None:
        config = replace(config, services=replace(config.services, web=options.web))
    run(config, foreign, options.http or config.services.http)
    return 0


def run_assigner(options: argparse.Namespace) -> int:
    """Runs the assigner until SIGTERM or SIGINT."""
    with without_collections():
        use_arrow_alone()
        from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
        from tidemark.epoch_protocol.entries import Stage
        from tidemark.index_assigner.main import run
        from tidemark.stream_writer.failpoints import WriterFailpoint

    foreign = frozenset(CoordinatorFailpoint) | frozenset(WriterFailpoint)
    stages = frozenset(Stage(stage) for stage in options.stages)
    run(_service_config(options, "assigner"), stages, foreign, options.http)
    return 0


def run_writer(options: argparse.Namespace) -> int:
    """Runs the writer until SIGTERM or SIGINT."""
    with without_collections():
        use_arrow_alone()
        from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
        from tidemark.index_assigner.failpoints import AssignerFailpoint
        from tidemark.stream_writer.main import run

    foreign = frozenset(AssignerFailpoint) | frozenset(CoordinatorFailpoint)
    run(_service_config(options, "writer"), foreign, options.http)
    return 0


def run_table_services(options: argparse.Namespace) -> int:
    """Works on the table's service actions until SIGTERM or SIGINT."""
    with without_collections():
        use_arrow_alone()
        from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
        from tidemark.config.table_services_model import ServicesRun
        from tidemark.console.errors import WRONG_USE, CliError
        from tidemark.index_assigner.failpoints import AssignerFailpoint
        from tidemark.stream_writer.services_main import run

    config = _service_config(options, "services")
    services = config.table_services
    if not services.enabled or services.run is not ServicesRun.SEPARATE:
        raise CliError(
            "the configuration does not ask for this process: set table_services.enabled: true and "
            "table_services.run: separate, for the coordinator and the writer, too",
            WRONG_USE,
        )
    run(config, frozenset(AssignerFailpoint) | frozenset(CoordinatorFailpoint), options.http)
    return 0


def _service_config(options: argparse.Namespace, service: str) -> TableConfigFile:
    from tidemark.config.log_format import LogFormat
    from tidemark.stream_runtime.logging import configure_logging
    from tidemark.stream_runtime.platform.state_folder import prepare_state_folder

    config = load_config(options.config)
    log_format = LogFormat(options.log_format) if options.log_format else config.telemetry.log_format
    configure_logging(service, log_format, table=config.table.name)
    prepare_state_folder(config.state.path)
    return resolve_addresses(config)
