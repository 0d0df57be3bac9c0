"""What rename(2) says when the target appears only after `LocalStorage` looked: precise errors, no damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark.hudi_format.errors import AlreadyExistsError, FileMissingError
from tidemark.hudi_format.storage import LocalStorage


@pytest.fixture
def unseeing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
    """A storage whose look before the rename sees nothing, as if the target appeared a moment later."""
    storage = LocalStorage(tmp_path)
    storage.create("ours/owner", b"ours")
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    return storage


def test_a_folder_that_meets_a_file_is_told_so(unseeing: LocalStorage) -> None:
    unseeing.create("lock", b"theirs")
    with pytest.raises(AlreadyExistsError):
        unseeing.rename("ours", "lock")
    assert unseeing.read("lock") == b"theirs"
    assert unseeing.read("ours/owner") == b"ours"


def test_a_folder_that_meets_a_full_folder_is_told_so(unseeing: LocalStorage) -> None:
    unseeing.create("lock/owner", b"theirs")
    with pytest.raises(AlreadyExistsError):
        unseeing.rename("ours", "lock")
    assert unseeing.read("lock/owner") == b"theirs"


def test_a_file_that_meets_a_folder_is_told_so(unseeing: LocalStorage) -> None:
    unseeing.create("lock/owner", b"theirs")
    unseeing.create("file", b"")
    with pytest.raises(AlreadyExistsError):
        unseeing.rename("file", "lock")


def test_a_parent_that_is_a_file_is_no_folder(unseeing: LocalStorage) -> None:
    unseeing.create("file", b"")
    with pytest.raises(FileMissingError):
        unseeing.rename("ours", "file/below")
    with pytest.raises(FileMissingError):
        unseeing.rename("file/owner", "lock")
