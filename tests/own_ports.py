"""Ports for servers that a test starts later: no two processes of the tests choose the same one.

A port is free when it is chosen, and its server listens some seconds later. Chosen at random, as the product
does it for one run on a machine, several levels of tests at a time would now and then choose one twice
meanwhile. So each process holds a block of its own, below the ports that the product chooses from.
"""

from __future__ import annotations

import itertools
import socket
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform.broker_files import NodePorts, is_free, new_cluster, save_cluster

_PORTS: Final = range(10_000, 12_000)
"""Those of the kill campaign follow (`tests/chaos/cluster.py`)."""
_BLOCK: Final = 200
"""More than the servers of one process: a port that comes again may be that of a broker that is down."""
_NUMBERS: Final = itertools.count()


def own_ports(count: int) -> list[int]:
    """So many ports on which nobody listens now, others than the ones of the calls before."""
    first, _ = _block()
    free: list[int] = []
    for number in itertools.islice(_NUMBERS, _BLOCK):
        if is_free(port := first + number % _BLOCK):
            free.append(port)
        if len(free) == count:
            return free
    raise AssertionError(f"of the ports {first} to {first + _BLOCK - 1} only {free} are free")


@cache
def _block() -> tuple[int, socket.socket]:
    """The first port, and a socket with a name that one process at a time can have, until it ends."""
    for first in _PORTS[::_BLOCK]:
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0tidemark-tests-ports-{first}")
        except OSError:
            held.close()
            continue
        return first, held
    raise AssertionError(f"more than {len(_PORTS) // _BLOCK} processes of tests have ports of their own")


def with_own_ports(folder: Path, nodes: int = 1) -> Path:
    """The folder of an embedded Kafka that is not there yet, whose nodes are going to have such ports."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = [NodePorts(*own_ports(2)) for _ in range(nodes)]
    save_cluster(folder, replace(new_cluster(nodes, SystemIds()), nodes=tuple(ports)))
    return folder
