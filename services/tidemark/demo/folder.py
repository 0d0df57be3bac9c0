"""The demo's folder. Everything that the demo makes is in it, and the demo replaces no folder but its own.

<dir>/.tidemark-demo   says that a demo made the folder
<dir>/flights.yaml     the table's configuration, on ports that were free
<dir>/flights.avsc     its schema
<dir>/state/           Kafka, caches, logs
<dir>/warehouse/       the table
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from tidemark.console.errors import WRONG_USE, CliError
from tidemark.console.state_lock import state_lock
from tidemark.stream_runtime.platform.broker_files import HOST, free_ports

MARKER: Final = ".tidemark-demo"
_SOURCE: Final = Path(__file__).parent
_REFERENCE: Final = re.compile(r"\$\{TIDEMARK_DEMO_([A-Z]+):-[^}]*\}")


def prepare_folder(folder: Path, table_type: str, random: Random, ask: Callable[[str], None]) -> Path:
    """Empties the folder or makes it, and writes the configuration; returns the configuration file. Before
    anything is deleted ``ask`` is called with what that is; it raises when the user does not agree.

    Raises CliError for a folder that is not a demo's, or whose demo still runs.
    """
    if folder.exists() and not folder.is_dir():
        raise CliError(f"{folder} is a file: name a folder with --dir", WRONG_USE)
    try:
        if folder.is_dir() and any(folder.iterdir()):
            _empty(folder, ask)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text("Made by `tidemark demo`; the next one replaces this folder.\n")
    except PermissionError as error:
        raise CliError(
            f"{error.filename}: no permission: name another folder with --dir", WRONG_USE
        ) from error
    shutil.copyfile(_SOURCE / "flights.avsc", folder / "flights.avsc")
    ports = dict(zip(("COORDINATOR", "METRICS"), free_ports(2, random), strict=True))
    file = folder / "flights.yaml"
    file.write_text(render_configuration((_SOURCE / "flights.yaml").read_text(), table_type, ports))
    return file


def render_configuration(text: str, table_type: str, ports: dict[str, int]) -> str:
    """The text of the demo's YAML, with the table's type, the ports and the embedded Kafka filled in."""

    def value_of(match: re.Match[str]) -> str:
        port = ports.get(match[1])
        return "embedded" if port is None else f"{HOST}:{port}"

    return _REFERENCE.sub(value_of, text).replace("type: merge_on_read", f"type: {table_type}", 1)


def _empty(folder: Path, ask: Callable[[str], None]) -> None:
    if not (folder / MARKER).is_file():
        raise CliError(
            f"{folder} exists and was not made by `tidemark demo`: name another folder with --dir", WRONG_USE
        )
    with state_lock(folder / "state", "tidemark demo"):
        ask(f"the former demo in {folder}: its table, its topics, its logs")
        for entry in folder.iterdir():
            if entry.name in (MARKER, "state"):
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.rmtree(folder / "state")
