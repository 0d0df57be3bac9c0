"""`state.path/run.json`: the addresses and process ids of a running `tidemark run`.

The file has what is known only at run time: the servers of an embedded Kafka, the ports chosen for port 0,
process ids. `run` replaces it atomically, and removes it when it ends. Its own children, other assigners
and the command line read it through `resolve_addresses`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidemark.config.errors import ConfigError
from tidemark.config.model import Address, TableConfigFile
from tidemark.config.values import BadValueError, host_and_port

NAME: Final = "run.json"
STOPPED_NAME: Final = "run-stopped.txt"


@dataclass(frozen=True, slots=True)
class RunFile:
    """Content of the file; roles are kafka, coordinator, assigner and writer.

    ``kafka``: bootstrap servers. ``run``: the supervisor's own process id. ``pids``: role -> process ids.
    ``stopped``: role -> why it is not started again. ``failing``: role -> why it dies again and again; it
    is still restarted. ``http``: service -> the address of its metrics. ``web``: the address of the page.
    """

    kafka: str
    coordinator: Address
    metrics: Address
    run: int
    pids: dict[str, list[int]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    http: dict[str, str] = field(default_factory=dict)
    web: str = ""


def run_file_path(state: Path) -> Path:
    """The file's path in ``state.path``."""
    return state / NAME


def write_run_file(state: Path, content: RunFile) -> None:
    """Replaces the file atomically."""
    document = {
        "kafka": content.kafka,
        "coordinator": str(content.coordinator),
        "metrics": str(content.metrics),
        "run": content.run,
        "pids": content.pids,
        "stopped": content.stopped,
        "failing": content.failing,
        "http": content.http,
        "web": content.web,
    }
    partial = state / f"{NAME}.partial"
    partial.write_text(json.dumps(document, indent=2) + "\n")
    partial.replace(run_file_path(state))


def read_run_file(state: Path) -> RunFile | None:
    """Reads the file; None when there is none, or its `run` is not alive. Raises ConfigError for other
    content.
    """
    path = run_file_path(state)
    try:
        document: Any = json.loads(path.read_bytes())
        content = RunFile(
            kafka=str(document["kafka"]),
            coordinator=Address(*host_and_port(document["coordinator"])),
            metrics=Address(*host_and_port(document["metrics"])),
            run=int(document["run"]),
            pids={str(role): [int(pid) for pid in pids] for role, pids in document["pids"].items()},
            stopped=_texts(document.get("stopped", {})),
            failing=_texts(document.get("failing", {})),
            http=_texts(document.get("http", {})),
            web=str(document.get("web", "")),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, BadValueError) as error:
        raise ConfigError(
            str(path), "", f"is not what `tidemark run` writes ({error}): delete it when no run is active"
        ) from None
    return content if is_alive(content.run) else None


def _texts(document: Any) -> dict[str, str]:
    return {str(role): str(text) for role, text in document.items()}


def write_last_stop(state: Path, reason: str | None) -> None:
    """Stores why a `run` ended by itself, for later commands; None: removes what is stored."""
    path = state / STOPPED_NAME
    if reason is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(reason + "\n", encoding="utf-8")


def why_silent(state: Path) -> str:
    """The known reason why no coordinator answers, as the end of a sentence; "" when none is known."""
    running = read_run_file(state)
    if running is not None:
        known = {**running.failing, **running.stopped}
        return f"; its coordinator {known['coordinator']}" if "coordinator" in known else ""
    try:
        reason = (state / STOPPED_NAME).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return f"; the last one stopped: {reason}"


def is_alive(pid: int) -> bool:
    """Whether a process of that id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def resolve_addresses(config: TableConfigFile) -> TableConfigFile:
    """Returns the configuration with addresses that clients can dial, instead of `embedded` and port 0.

    Raises ConfigError when these are only known to a running `tidemark run`, and none is running.
    """
    needs_kafka, at = config.kafka.embedded, config.services.coordinator
    if not needs_kafka and at.port:
        return config
    running = read_run_file(config.state.path)
    if running is None:
        key, what = (
            ("kafka.bootstrap.servers", "embedded") if needs_kafka else ("services.coordinator", str(at))
        )
        raise ConfigError(
            str(config.file),
            key,
            f"is {what}, and no `tidemark run` is active on {config.state.path}: start "
            f"`tidemark run -c {config.file}`, or name a real address{why_silent(config.state.path)}",
        )
    kafka = config.kafka.with_bootstrap_servers(running.kafka) if needs_kafka else config.kafka
    services = config.services
    if not at.port:
        services = dataclasses.replace(services, coordinator=running.coordinator, metrics=running.metrics)
    return dataclasses.replace(config, kafka=kafka, services=services)
