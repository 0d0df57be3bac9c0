"""A copy of a served table's folder, with a configuration that names the coordinator of the table it was
copied from: no command reaches that coordinator. The service itself answers, with Kafka in memory.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testing.ids import SeededIds
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.tidemark_cli.table_files import write_config
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.cli.main import main
from tidemark.commit_coordinator import bootstrap
from tidemark.commit_coordinator.admin.service import AdminService
from tidemark.commit_coordinator.bootstrap import CoordinatorService, Ports
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.config import load_config
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.platform.broker_files import free_ports

COMMANDS = {
    "Status": ["status"],
    "Flush": ["flush"],
    "Lookup": ["lookup", "id:1"],
    "ListEpochs": ["epoch", "list"],
    "ShowEpoch": ["epoch", "show", "1"],
    "RetryEpoch": ["epoch", "retry", "1"],
    "AcceptTopic": ["input", "accept-topic", "orders-in"],
    "SkipInput": ["input", "skip", "--topic", "orders-in", "--partition", "0", "--offset", "0"],
    "Pause": ["pause"],
    "Resume": ["resume"],
    "ListDeadLetters": ["dead-letter", "list"],
    "ShowDeadLetter": ["dead-letter", "show", "0"],
    "ReplayDeadLetters": ["dead-letter", "replay"],
}
# The first question of each command, and calls that no command makes.
OTHERS = {"Serves", "Verify", "LastVerification", "DescribeTable"}
METHODS = {method.name for method in pb.DESCRIPTOR.services_by_name["Admin"].methods}


class Production:
    """The served table and its configuration; ``called``: what the coordinator was asked, in order."""

    def __init__(self, file: Path, table: Path) -> None:
        self.file, self.table, self.called = file, table, list[str]()

    def recording(self, name: str) -> Callable[..., Any]:
        """The product's handler, which is noted down."""

        def handler(service: AdminService, request: Any, context: Any) -> Any:
            self.called.append(name)
            return getattr(AdminService, name)(service, request, context)

        return handler


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    folder = tmp_path_factory.mktemp("production")
    [port] = free_ports(1, random.Random())
    made = Production(write_config(folder, coordinator=f"127.0.0.1:{port}"), folder / "table")
    cluster = MemoryCluster()
    ports = Ports(
        cluster.client,
        LocalStorage(made.table),
        cluster.clock,
        SeededIds(1),
        FailpointRegistry(CoordinatorFailpoint),
    )
    recorded = type("Recorded", (AdminService,), {name: made.recording(name) for name in METHODS})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bootstrap, "AdminService", recorded)
        service = CoordinatorService(load_config(made.file), ports)
        try:
            service.start()
            yield made
        finally:
            service.close()


def copied(production: Production, folder: Path) -> Path:
    """Folder and configuration, as somebody copies them; returns the configuration."""
    shutil.copytree(production.table, folder / "table")
    for file in ("orders.yaml", "orders.avsc"):
        shutil.copy(production.file.parent / file, folder / file)
    return folder / "orders.yaml"


def test_every_call_that_a_command_makes_is_tried() -> None:
    assert COMMANDS.keys() | OTHERS == METHODS


@pytest.mark.parametrize("method", COMMANDS)
def test_no_command_of_a_copy_reaches_the_coordinator_of_the_table(
    production: Production, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = copied(production, tmp_path)
    production.called.clear()
    assert main([*COMMANDS[method], "-c", str(file)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        f"the ledger of the table at {production.table}, and table.path is {tmp_path / 'table'}" in said.err
    )
    assert "a table.name and a state.path of its own" in said.err
    assert production.called == ["Serves"]


@pytest.mark.parametrize("method", ["Flush", "Status", "Pause", "Resume"])
def test_the_table_itself_is_commanded_whatever_its_path_is_called(
    production: Production, method: str, tmp_path: Path
) -> None:
    """With the product's own answer; other mounts have tests of their own (`test_table_place`)."""
    (tmp_path / "table").symlink_to(production.table)
    for name in ("orders.yaml", "orders.avsc"):
        shutil.copy(production.file.parent / name, tmp_path / name)
    for file in (production.file, tmp_path / "orders.yaml"):
        production.called.clear()
        assert main([*COMMANDS[method], "-c", str(file)]) == 0
        assert production.called == ["Serves", method]
