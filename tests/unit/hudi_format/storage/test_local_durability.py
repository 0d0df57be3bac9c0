"""What `LocalStorage` shows under a name is on the disk, and so is the name: file first, then its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.hudi_format.storage import LocalStorage

FOLDER, NAME = "day=1", "day=1/file"
WAYS: dict[str, tuple[str, Callable[[LocalStorage], None]]] = {
    "create": (FOLDER, lambda storage: storage.create(NAME, b"content")),
    "replace": (FOLDER, lambda storage: storage.replace(NAME, b"content")),
    "publish": ("staging", lambda storage: storage.publish("staging", NAME, b"content")),
    "publish over": ("staging", lambda storage: storage.publish("staging", NAME, b"content", overwrite=True)),
}


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, bytes]]:
    """Each fsync, in order: of what, whether the target had its name by then, and the content so far."""
    found: list[tuple[str, bool, bytes]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        content = path.read_bytes() if path.is_file() else b""
        found.append((str(path.relative_to(tmp_path)), (tmp_path / NAME).exists(), content))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_content_is_synced_before_it_has_its_name_and_the_name_after_it(
    tmp_path: Path, synced: list[tuple[str, bool, bytes]], way: str
) -> None:
    storage = LocalStorage(tmp_path)
    for folder in ("staging", FOLDER):
        storage.make_dir(folder)
    synced.clear()
    where, write = WAYS[way]
    write(storage)
    (temporary, named, content), folder_sync = synced
    assert (Path(temporary).parent, named, content) == (Path(where), False, b"content")
    assert folder_sync == (FOLDER, True, b"")


def test_new_folders_and_renames_are_synced_into_their_parents(
    tmp_path: Path, synced: list[tuple[str, bool, bytes]]
) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("a/b/file", b"")
    assert [path for path, *_ in synced if "tmp" not in path] == [".", "a", "a/b"]
    storage.make_dir("lock", exclusive=True)
    assert synced[-1][0] == "."
    synced.clear()
    storage.rename("a/b/file", "a/file")
    assert sorted(path for path, *_ in synced) == ["a", "a/b"]
    storage.sync_dir("a")
    assert synced[-1][0] == "a"
