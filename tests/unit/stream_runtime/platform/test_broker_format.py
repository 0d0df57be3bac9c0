"""What Kafka's tool wrote once formats later brokers; where anything is unusual, the tool does it itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testing.ids import SeededIds
from tidemark.stream_runtime.platform import broker_format
from tidemark.stream_runtime.platform.broker_files import new_cluster, server_settings
from tidemark.stream_runtime.platform.broker_format import NAMES, SNAPSHOT, BrokerFormat

CONTENT = b"\x00what this Kafka can do"


class Machine:
    """A jar and a cache below one folder, and data folders that a tool formatted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jar = folder / "kafka.jar"
        self.jar.write_bytes(b"classes")
        self.cache = folder / "cache" / "broker-format"
        self.ids = SeededIds(1)
        self.nodes = 1

    def format(self, **settings: str) -> BrokerFormat:
        """`settings` with `_` for the dots in their names."""
        usual = server_settings(new_cluster(self.nodes, self.ids), 1, self.folder / self.ids.uuid())
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return BrokerFormat([self.jar], usual, named, {"TIDEMARK_CACHE_DIR": str(self.cache.parent)})

    def by_the_tool(self, name: str = "first", more: str = "", version: int = 1) -> Path:
        """A data folder as the tool leaves it, of node 1 of the cluster C."""
        data = self.folder / name
        (data / SNAPSHOT).parent.mkdir(parents=True)
        (data / SNAPSHOT).write_bytes(CONTENT)
        lines = f"#\n#Mon Nov 30\nnode.id=1\ndirectory.id=D\nversion={version}\ncluster.id=C\n{more}"
        (data / NAMES).write_text(lines)
        return data

    def kept(self, **tool: int | str) -> None:
        self.format().keep(self.by_the_tool(**tool), "C", 1)  # type: ignore[arg-type]

    def applied(self, **settings: str) -> bool:
        (self.folder / "next").mkdir(exist_ok=True)
        return self.format(**settings).apply(self.folder / "next", "OTHER", 2, self.ids)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_former_broker_the_tool_formats(machine: Machine) -> None:
    assert not machine.applied()
    assert list((machine.folder / "next").iterdir()) == []


def test_a_later_broker_gets_the_same_snapshot_and_names_of_its_own(machine: Machine) -> None:
    machine.kept()
    assert machine.applied()
    data = machine.folder / "next"
    assert (data / SNAPSHOT).read_bytes() == CONTENT
    names = dict(line.split("=") for line in (data / NAMES).read_text().splitlines())
    assert names.keys() == {"version", "cluster.id", "node.id", "directory.id"}
    assert (names["version"], names["cluster.id"], names["node.id"]) == ("1", "OTHER", "2")
    assert len(names["directory.id"]) == 22
    assert not names["directory.id"].startswith("-")
    assert sorted(str(file.relative_to(data)) for file in data.rglob("*") if file.is_file()) == [
        SNAPSHOT,
        NAMES,
    ]


def test_other_jars_are_formatted_by_their_own_tool(machine: Machine) -> None:
    machine.kept()
    os.utime(machine.jar, ns=(1, 1))
    assert not machine.applied()


@pytest.mark.parametrize(
    "setting",
    ["log_dirs", "log_dir", "metadata_log_dir", "controller_quorum_voters", "unstable_api_versions_enable"],
)
def test_settings_that_change_the_files_leave_it_to_the_tool(machine: Machine, setting: str) -> None:
    machine.format(**{setting: "x"}).keep(machine.by_the_tool(), "C", 1)
    assert not machine.cache.exists()
    assert not machine.applied(**{setting: "x"})


def test_a_dynamic_quorum_is_left_to_the_tool(machine: Machine) -> None:
    """Its snapshot names the voters, and so is one broker's own."""
    settings = {"controller_quorum_bootstrap_servers": "127.0.0.1:1"}
    machine.format(**settings).keep(machine.by_the_tool(), "C", 1)
    assert not machine.cache.exists()


@pytest.mark.parametrize("settings", [{"process_roles": "broker"}, {"num_partitions": "3"}])
def test_brokers_with_other_settings_have_another_file(machine: Machine, settings: dict[str, str]) -> None:
    machine.kept()
    assert not machine.applied(**settings)
    machine.format(**settings).keep(machine.by_the_tool("second"), "C", 1)
    assert machine.applied(**settings)
    assert not machine.applied(**dict.fromkeys(settings, "4"))
    assert machine.applied()


def test_a_cluster_of_three_nodes_has_another_file(machine: Machine) -> None:
    machine.kept()
    machine.nodes = 3
    assert not machine.applied()


def test_a_kept_file_that_was_cut_short_or_changed_is_none(machine: Machine) -> None:
    machine.kept()
    [file] = machine.cache.iterdir()
    for content in (CONTENT[:-1], b"", CONTENT[:-1] + b"0"):
        file.write_bytes(content)
        assert not machine.applied()
    file.write_bytes(CONTENT)
    assert machine.applied()


@pytest.mark.parametrize(("more", "version"), [("epoch=1\n", 1), ("directory.id=E\n", 1), ("", 2)])
def test_names_that_are_not_known_are_not_kept(machine: Machine, more: str, version: int) -> None:
    machine.kept(more=more, version=version)
    assert not machine.cache.exists()


def test_names_that_are_not_text_fail_no_start(machine: Machine) -> None:
    data = machine.by_the_tool()
    (data / NAMES).write_bytes(b"\xff\xfe")
    machine.format().keep(data, "C", 1)
    assert not machine.cache.exists()


def test_a_data_folder_that_cannot_be_read_fails_no_start(machine: Machine) -> None:
    data = machine.by_the_tool()
    (data / SNAPSHOT).unlink()
    (data / SNAPSHOT).symlink_to(data / SNAPSHOT)
    machine.format().keep(data, "C", 1)
    assert not machine.cache.exists()


def test_the_snapshot_is_on_the_disk_before_the_names_are_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power a folder with names and without the snapshot would be taken for formatted."""
    machine.kept()
    data, synced = machine.folder / "next", []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.relative_to(data), (data / SNAPSHOT).exists(), (data / NAMES).exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    assert machine.applied()
    folders = [(str(path), *there) for path, *there in synced if (data / path).is_dir()]
    assert folders == [("__cluster_metadata-0", True, False), (".", True, False)]


def test_another_file_of_the_tools_is_not_left_out_silently(machine: Machine) -> None:
    data = machine.by_the_tool()
    (data / "bootstrap.checkpoint").write_bytes(b"new")
    machine.format().keep(data, "C", 1)
    assert not machine.cache.exists()


def test_a_cache_that_cannot_be_written_fails_no_start(machine: Machine) -> None:
    machine.cache.parent.write_text("a file where the folder would be")
    machine.kept()
    assert not machine.applied()


def test_the_oldest_files_make_room_and_never_the_one_just_written(machine: Machine) -> None:
    """The others may have later times: a clock was set back, or a tick of it was long."""
    for number in range(broker_format.KEPT_MAX + 1):
        os.utime(machine.jar, (number, number))
        before = set(machine.cache.glob("*"))
        machine.kept(name=f"by-{number}")
        [new] = set(machine.cache.iterdir()) - before
        os.utime(new, (2**32 + number, 2**32 + number))
        if number == 0:
            oldest = new
        assert machine.applied()
    assert len(list(machine.cache.iterdir())) == broker_format.KEPT_MAX
    assert not oldest.exists()
