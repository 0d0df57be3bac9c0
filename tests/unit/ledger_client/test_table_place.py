"""What tells a copy of a table's folder from the same folder under another path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tidemark.epoch_protocol.entries import TableLocation
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.ledger_client.table_identity import TABLE_ID, is_copy


class Folders:
    """The served table, and what a configuration names: ``ours``. ``file``: the one that the coordinator
    tells of.
    """

    def __init__(self, folder: Path, file: str) -> None:
        self.served, self.ours, self.file = folder / "served", folder / "ours", file
        LocalStorage(self.served).create(PROPERTIES_PATH, b"hoodie.table.name=orders\n")
        LocalStorage(self.served).create(TABLE_ID, b"ledger-a")

    def said(self, *, path: Path | None = None, device: int | None = None, inode: int = 0) -> TableLocation:
        """What the coordinator says of the served table, as it lies unless it is given here."""
        found = os.stat(self.served / self.file)
        return self.location(str(path or self.served), f"{device or found.st_dev}:{inode or found.st_ino}")

    def location(self, path: str, said: str) -> TableLocation:
        """What stands for ``file`` is said."""
        return TableLocation(path, said) if self.file == PROPERTIES_PATH else TableLocation(path, "", said)

    def copy(self) -> None:
        shutil.copytree(self.served, self.ours)

    def is_copy(self, said: TableLocation) -> bool:
        return is_copy(LocalStorage(self.ours), said)


@pytest.fixture(params=[PROPERTIES_PATH, TABLE_ID], ids=["a former version", "table-id"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> Folders:
    return Folders(tmp_path, request.param)


def test_a_copy_beside_the_served_table(folders: Folders) -> None:
    folders.copy()
    assert folders.is_copy(folders.said())


def test_a_copy_beside_the_served_table_on_a_machine_that_numbers_devices_otherwise(folders: Folders) -> None:
    """Both lie on a network file system, that the coordinator's machine mounts at the same path."""
    folders.copy()
    assert folders.is_copy(folders.said(device=987_654))


def test_the_served_table_itself(folders: Folders) -> None:
    folders.ours = folders.served
    assert not folders.is_copy(folders.said())
    folders.ours = folders.served.parent / "link"
    folders.ours.symlink_to(folders.served)
    assert not folders.is_copy(folders.said())


@pytest.mark.parametrize("device", [None, 987_654])
def test_the_served_table_under_another_mount(folders: Folders, device: int | None) -> None:
    """Of a container (the device stays), or of another machine (it has another one)."""
    folders.ours = folders.served
    assert not folders.is_copy(folders.said(path=Path("/in/the/container"), device=device))


def test_the_served_table_under_another_mount_and_a_stranger_at_the_coordinators_path(
    folders: Folders, tmp_path: Path
) -> None:
    """Two tables, each in a container that calls it /data/table, and the host has a third one there."""
    folders.ours, stranger = folders.served, tmp_path / "stranger"
    shutil.copytree(folders.served, stranger)
    assert not folders.is_copy(folders.said(path=stranger))
    # A file system that gives its files other inodes under each mount.
    assert not folders.is_copy(folders.said(path=stranger, inode=1 << 40))


def test_what_cannot_be_told_is_no_copy(folders: Folders) -> None:
    assert not folders.is_copy(folders.said()), "ours is not seen here"
    folders.copy()
    assert not folders.is_copy(folders.said(path=Path("/not/here"))), "theirs is not"
    assert not folders.is_copy(folders.location(str(folders.served), "")), "it has no number"
    for path in ("", "served", "/nul\0byte"):
        assert not folders.is_copy(folders.location(path, folders.said().file or folders.said().identity))
    os.link(folders.ours / folders.file, folders.ours / "hard-link")
    assert not folders.is_copy(folders.said()), "one file under two paths"


def test_a_folder_that_cannot_be_looked_into_is_no_copy(folders: Folders) -> None:
    folders.copy()
    said = folders.said()
    shutil.rmtree(folders.served / ".hoodie")
    (folders.served / ".hoodie").symlink_to(folders.served / ".hoodie")
    assert not folders.is_copy(said)
