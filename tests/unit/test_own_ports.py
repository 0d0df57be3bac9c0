"""Ports of the tests' own servers: two processes never choose the same one (`tests/own_ports.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.own_ports import own_ports, with_own_ports
from tidemark.stream_runtime.platform.broker_files import load_cluster

ROOT = Path(__file__).resolve().parents[2]
CHOOSES = "import json; from tests.own_ports import own_ports; print(json.dumps(own_ports(40)), flush=True)"


def test_processes_that_run_at_the_same_time_choose_different_ports() -> None:
    command = [sys.executable, "-c", f"{CHOOSES}; input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        theirs = json.loads(other.stdout.readline())
        ours = own_ports(40)
        other.communicate("\n")
    assert len({*theirs, *ours}) == 80


def test_an_embedded_kafka_finds_its_ports_in_its_folder(tmp_path: Path) -> None:
    cluster = load_cluster(with_own_ports(tmp_path / "kafka", 3))
    assert cluster is not None
    ports = [port for node in cluster.nodes for port in (node.broker, node.controller)]
    assert len(set(ports)) == 6
    assert max(ports) < 12_000
