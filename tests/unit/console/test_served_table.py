"""Commands that ask a coordinator, and one that serves another table of the same name."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from testing.ids import SeededIds
from testing.terms import begin_term
from tests.own_ports import own_ports
from tests.unit.commit_coordinator.admin_parts import admin_service
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import write_config
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.cli.main import main
from tidemark.commit_coordinator.admin.limits import SERVICE_NAME
from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports
from tidemark.commit_coordinator.calls.reader_death_record import READER_DEATHS, ReaderDeaths
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.opening import sign_of_life
from tidemark.commit_coordinator.opening.served import show_owner
from tidemark.commit_coordinator.opening.sign_of_life import SIGN, SignOfLife
from tidemark.config import load_config
from tidemark.config.model import Address
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.publication.folders import term_dir
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_identity import Served as Answer
from tidemark.ledger_client.table_identity import shown_owner
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.rpc.server import RpcServer, start_server


class Served:
    """A coordinator of `orders`, as far as `flush` asks it."""

    def __init__(self) -> None:
        self.path, self.owner = "", ""
        self.location: TableLocation | None = None
        board = ViewBoard()
        board.show(CoordinatorView(epoch=7))
        service = admin_service(
            "orders", board=board, served=lambda: Answer(self.path, self.owner, self.location)
        )
        self.server: RpcServer = start_server(
            Address("127.0.0.1", 0),
            [(SERVICE_NAME, lambda server: admin_pb2_grpc.add_AdminServicer_to_server(service, server))],
        )


@pytest.fixture
def coordinator() -> Iterator[Served]:
    served = Served()
    try:
        yield served
    finally:
        served.server.stop()


def own(folder: Path, owner: str) -> None:
    """What a coordinator leaves with the table that it took over."""
    storage = LocalStorage(folder)
    show_owner(begin_term(storage), owner)


def says_serving(storage: LocalStorage) -> bool:
    return msgspec.json.decode(storage.read(READER_DEATHS), type=ReaderDeaths).serving


def flush(folder: Path, coordinator: Served) -> int:
    config = write_config(folder, coordinator=f"127.0.0.1:{coordinator.server.address.port}")
    return main(["flush", "-c", str(config)])


def test_the_owners_name_tells_the_table_whatever_its_path_is_called(
    coordinator: Served, tmp_path: Path
) -> None:
    coordinator.path, coordinator.owner = "/mounted/in/a/container", "coordinator-a"
    own(tmp_path / "table", "coordinator-a")
    assert flush(tmp_path, coordinator) == 0


@pytest.mark.parametrize("path", ["/elsewhere/table", ""])
def test_another_table_of_the_same_name_is_refused(
    coordinator: Served, tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where its path reads the same, as in two containers."""
    coordinator.path, coordinator.owner = path or str(tmp_path / "table"), "coordinator-a"
    own(tmp_path / "table", "coordinator-b")
    assert flush(tmp_path, coordinator) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "serves another table named 'orders'" in captured.err
    assert str(tmp_path / "table") in captured.err


@pytest.mark.parametrize(("starts", "shown"), [(True, True), (False, False)])
def test_with_no_owner_to_compare_the_path_decides(
    coordinator: Served, tmp_path: Path, starts: bool, shown: bool
) -> None:
    """It takes over and the name is its predecessor's, or the table's folder cannot be seen from here."""
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "table").symlink_to(there)
    if shown:
        own(there, "coordinator-of-before")
    coordinator.owner = "" if starts else "coordinator-a"
    coordinator.path = str(there)
    assert flush(tmp_path, coordinator) == 0
    coordinator.path = str(tmp_path / "other")
    assert flush(tmp_path, coordinator) == 1


@pytest.mark.parametrize("said", ["nothing", "a path that is not here", "a path that is a stranger's here"])
def test_whoever_cannot_see_the_served_table_goes_on(coordinator: Served, tmp_path: Path, said: str) -> None:
    """A coordinator of a former version, on another machine, or in a container: the same folder may have
    another path, device and inode here."""
    stranger = tmp_path / "stranger"
    LocalStorage(stranger).create(PROPERTIES_PATH, b"hoodie.table.name=orders\n")
    LocalStorage(tmp_path / "table").create(PROPERTIES_PATH, b"hoodie.table.name=orders\n")
    own(tmp_path / "table", "coordinator-a")
    coordinator.path, coordinator.owner = "/data/orders", "coordinator-a"
    if said != "nothing":
        path = "/data/orders" if said == "a path that is not here" else str(stranger)
        coordinator.location = TableLocation(path, f"7:{1 << 40}")
    assert flush(tmp_path, coordinator) == 0


@pytest.mark.parametrize("way", ["--new-ledger", "--copied", "--moved"])
def test_a_table_that_is_served_at_another_address_gets_no_new_ledger(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is idle: no heartbeat, no lock, no pending write shows it."""
    monkeypatch.setattr(sign_of_life, "CHANGES_EVERY_S", 0.1)
    config = str(write_config(tmp_path, coordinator="127.0.0.1:1"))
    assert main(["table", "create", "-c", config]) == 0
    storage = LocalStorage(tmp_path / "table")
    with SignOfLife(begin_term(storage), "coordinator-a"):
        while not storage.exists(SIGN):
            time.sleep(0.01)
        capsys.readouterr()
        assert main(["table", "adopt", "-c", config, way, "--yes"]) == 1
        assert "and not at 127.0.0.1:1" in capsys.readouterr().err
        assert storage.exists(term_dir(1)), "its term goes on"


def test_what_the_coordinator_refuses_is_shown_without_the_method(
    coordinator: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.path = str(tmp_path / "table")
    config = write_config(tmp_path, coordinator=str(coordinator.server.address))
    assert main(["epoch", "show", "99", "-c", str(config)]) == 2
    # The server is in this process, and may log before.
    shown = capsys.readouterr().err.splitlines()[-1]
    assert shown.startswith("tidemark epoch show: epoch 99 is not known")


def test_a_coordinator_is_known_by_its_table_from_each_start_on(tmp_path: Path) -> None:
    """The service itself, with Kafka in memory; its namesake has the same address and topics."""
    [port] = own_ports(1)
    folders = [tmp_path / "served", tmp_path / "namesake"]
    for folder in folders:
        folder.mkdir()
    served, namesake = (write_config(folder, coordinator=f"127.0.0.1:{port}") for folder in folders)
    cluster, storage = MemoryCluster(), LocalStorage(folders[0] / "table")
    own(folders[1] / "table", "coordinator-of-the-namesake")
    failpoints = FailpointRegistry(CoordinatorFailpoint)
    names = set()
    for start in range(2):
        ports = Ports(cluster.client, storage, cluster.clock, SeededIds(start), failpoints)
        service = CoordinatorService(load_config(served), ports)
        try:
            service.start()
            assert main(["flush", "-c", str(served)]) == 0
            assert main(["flush", "-c", str(namesake)]) == 1
            names.add(shown_owner(storage))
            assert says_serving(storage)
        finally:
            service.close()
        # Else the next one takes it for killed, together with who read the input.
        assert not says_serving(storage)
    assert len(names - {None}) == 2


def test_a_coordinator_gives_its_sign_of_life_as_long_as_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service itself, idle, with Kafka in memory: by its file, and by the command at another address."""
    monkeypatch.setattr(sign_of_life, "CHANGES_EVERY_S", 0.05)
    [port] = own_ports(1)
    config, cluster = write_config(tmp_path, coordinator=f"127.0.0.1:{port}"), MemoryCluster()
    storage, stop = LocalStorage(tmp_path / "table"), threading.Event()
    ports = Ports(
        cluster.client, storage, cluster.clock, SeededIds(0), FailpointRegistry(CoordinatorFailpoint)
    )
    service = CoordinatorService(load_config(config), ports)
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            service.run(stop)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(3):
            until_changed(storage, ended)
        elsewhere = write_config(tmp_path, coordinator="127.0.0.1:1")
        assert main(["table", "adopt", "-c", str(elsewhere), "--moved", "--yes"]) == 1
        assert not ended
    finally:
        stop.set()
        thread.join(120.0)
    assert ended == [None]
    assert not storage.exists(SIGN)


def until_changed(storage: LocalStorage, ended: list[BaseException | None]) -> bytes:
    """Returns what the sign says once it says something else."""
    before, end_s = content(storage), time.monotonic() + 60.0
    while not (now := content(storage)) or now == before:
        assert not ended, ended
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return now


def content(storage: LocalStorage) -> bytes:
    return bytes(storage.read(SIGN)) if storage.exists(SIGN) else b""
