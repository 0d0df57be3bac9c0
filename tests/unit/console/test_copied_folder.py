"""A copy of a served table's folder, with a configuration that names the coordinator of the table it was
copied from: no command reaches that coordinator. The service itself answers, with Kafka in memory.

A command from a copy is refused before its own call: the command line compares the folders, by the answer of
`Serves`, which has to come. Three calls are made by no command. Who makes them is another program, which has
no folder that could be a copy: it names a table, and the answers say of which folder they are, or belong to
who serves. What the command line has in their place, `verify` and `table describe`, reads the copy's own
files and asks nobody.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from testing.ids import SeededIds
from tests.own_ports import own_ports
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import write_config
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.cli.main import main
from tidemark.commit_coordinator.admin.service import AdminService
from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building import answers
from tidemark.commit_coordinator.building.parts import Ports
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.opening.sign_of_life import SIGN
from tidemark.config import load_config
from tidemark.console import admin_client
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.rpc.channel import call, open_channel

COMMANDS = {
    "Status": ["status"],
    "Flush": ["flush"],
    "Lookup": ["lookup", "id:1"],
    "LookupStream": ["lookup", "--file", __file__],
    "LookupValue": ["lookup", "--where", "at=1"],
    "WarmIndex": ["index", "warm"],
    "ListEpochs": ["epoch", "list"],
    "ShowEpoch": ["epoch", "show", "1"],
    "RetryEpoch": ["epoch", "retry", "1"],
    "AcceptTopic": ["input", "accept-topic", "orders-in"],
    "SkipInput": ["input", "skip", "--topic", "orders-in", "--partition", "0", "--offset", "0"],
    "Pause": ["pause"],
    "Resume": ["resume"],
    "ListServices": ["services", "list"],
    "RunService": ["services", "run", "clean"],
    "PauseServices": ["services", "pause"],
    "ResumeServices": ["services", "resume"],
    "ListDeadLetters": ["dead-letter", "list"],
    "ShowDeadLetter": ["dead-letter", "show", "0"],
    "ReplayDeadLetters": ["dead-letter", "replay"],
}
FIRST_QUESTION = "Serves"
"""By its answer a copy is told: it is never refused for the folder of who asks."""
OF_OTHER_PROGRAMS = {
    "Verify": pb.VerifyRequest,
    "LastVerification": pb.LastVerificationRequest,
    "DescribeTable": pb.DescribeTableRequest,
}
"""No command makes these calls, so that none can make them from a copy."""
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
    [port] = own_ports(1)
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
        patched.setattr(answers, "AdminService", recorded)
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


def files_of(table: Path) -> dict[str, bytes]:
    """Content by path, without what a coordinator writes anew every few seconds."""
    files = {str(each.relative_to(table)): each for each in table.rglob("*") if each.is_file()}
    return {path: file.read_bytes() for path, file in files.items() if path != SIGN}


def test_every_call_is_tried() -> None:
    assert COMMANDS.keys() | {FIRST_QUESTION} | OF_OTHER_PROGRAMS.keys() == METHODS


def test_commands_make_no_call_that_is_not_tried_from_a_copy() -> None:
    sources = [file.read_text() for file in Path(admin_client.__file__).parent.rglob("*.py")]
    made = {name for text in sources for name in re.findall(r"\b_?stub\.([A-Z]\w*)", text)}
    assert made == COMMANDS.keys() | {FIRST_QUESTION}


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


@contextmanager
def asking(production: Production) -> Iterator[admin_pb2_grpc.AdminStub]:
    """Another program, which knows the coordinator's address and the table's name."""
    with open_channel(load_config(production.file).services.coordinator) as channel:
        yield admin_pb2_grpc.AdminStub(channel)


def test_the_first_question_is_answered_with_the_folder_that_is_served(production: Production) -> None:
    with asking(production) as stub:
        answer = call(stub.Serves, pb.ServesRequest(table="orders"))
    assert answer.path == str(production.table)
    assert answer.location.path == str(production.table)


@pytest.mark.parametrize("method", OF_OTHER_PROGRAMS)
def test_what_other_programs_ask_names_a_table_and_no_folder(production: Production, method: str) -> None:
    request = OF_OTHER_PROGRAMS[method]
    fields = pb.DESCRIPTOR.message_types_by_name[f"{method}Request"].fields
    assert {field.name for field in fields} <= {"table", "full"}
    production.called.clear()
    with asking(production) as stub:
        ask = partial(getattr(stub, method), request(table="orders-of-a-copy"), timeout=60)
        with pytest.raises(grpc.RpcError, match="serves table 'orders'"):
            list(ask() if method == "Verify" else [ask()])
    assert production.called == [method]


def test_what_describes_the_table_says_of_which_folder(production: Production) -> None:
    with asking(production) as stub:
        answer = call(stub.DescribeTable, pb.DescribeTableRequest(table="orders"))
    assert json.loads(answer.json)["path"] == str(production.table)


@pytest.mark.parametrize("command", [["verify"], ["table", "describe"]], ids=" ".join)
def test_commands_that_read_files_read_those_of_the_copy_and_ask_nobody(
    production: Production, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = copied(production, tmp_path)
    production.called.clear()
    before = files_of(production.table)
    assert main([*command, "-c", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.get("path", str(tmp_path / "table")) == str(tmp_path / "table")
    assert (files_of(production.table), production.called) == (before, [])
    # Without the copy's files there is no answer: it came from nowhere else.
    shutil.rmtree(tmp_path / "table")
    assert main([*command, "-c", str(file), "--json"]) != 0
    assert production.called == []


@pytest.mark.parametrize(
    "command",
    [["recover"], *(["table", "adopt", way, "--yes"] for way in ("--new-ledger", "--copied", "--moved"))],
    ids=" ".join,
)
def test_commands_that_end_what_is_open_are_refused_while_the_table_is_served(
    production: Production, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They ask nothing of the coordinator: that one is there is enough."""
    file = copied(production, tmp_path)
    production.called.clear()
    before = files_of(tmp_path / "table")
    assert main([*command, "-c", str(file)]) == 1
    assert "a coordinator serves at" in capsys.readouterr().err
    assert (files_of(tmp_path / "table"), production.called) == (before, [])


@pytest.mark.parametrize("method", ["Flush", "Status", "ListEpochs", "ListServices"])
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
