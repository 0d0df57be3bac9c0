"""Finds the ports that other configurations in the same folder use, so that the new table can run
beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tidemark.config import ServicesConfig

_STEP: Final = 10
_FILES_MAX: Final = 200
_FILE_BYTES_MAX: Final = 1 << 20
_PORTS: Final = ("coordinator", "metrics", "web")


def free_services(folder: Path, own: Path) -> dict[str, str]:
    """The `services` section for a file in `folder`; empty when no other file there uses the default
    ports.
    """
    defaults = ServicesConfig()
    addresses = {name: getattr(defaults, name) for name in _PORTS}
    known = {name: address for name, address in addresses.items() if address is not None and address.port}
    taken: set[int] = set()
    for file in sorted(folder.glob("*.y*ml"))[:_FILES_MAX]:
        if file.resolve() != own.resolve():
            taken |= _ports_of(file, {name: address.port for name, address in known.items()})
    if not taken & {address.port for address in known.values()}:
        return {}
    step = _STEP
    while any(address.port + step in taken for address in known.values()):
        step += _STEP
    return {name: f"{address.host}:{address.port + step}" for name, address in known.items()}


def _ports_of(file: Path, defaults: Mapping[str, int]) -> set[int]:
    """The ports of a configuration file; empty for a file that is no configuration of Tidemark."""
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            return set()
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return set()
    if not isinstance(document, dict) or not isinstance(document.get("table"), dict):
        return set()
    given = document.get("services")
    services: Mapping[Any, Any] = given if isinstance(given, dict) else {}
    ports = set()
    for name, default in defaults.items():
        port = str(services.get(name, default)).rpartition(":")[2]
        ports.add(int(port) if port.isascii() and port.isdecimal() else default)
    return ports
