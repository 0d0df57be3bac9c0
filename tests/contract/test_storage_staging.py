"""The storage contract of staging folders: files appear out of them; renaming one away fences its writers."""

from __future__ import annotations

import pytest

from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.errors import FencedOutError as GoneError
from tidemark.hudi_format.storage.base import FolderStorage as Storage


def test_publish_makes_the_file_and_leaves_nothing_in_staging(storage: Storage) -> None:
    storage.make_dir("staging/term-1")
    storage.publish("staging/term-1", "part/ition/file", b"data")
    assert storage.read("part/ition/file") == b"data"
    assert storage.list("staging/term-1") == []


def test_publish_over_an_existing_file_fails_and_the_first_one_stays(storage: Storage) -> None:
    storage.make_dir("s")
    storage.publish("s", "file", b"first")
    with pytest.raises(AlreadyExistsError):
        storage.publish("s", "file", b"second")
    assert storage.read("file") == b"first"
    assert storage.list("s") == []


def test_publish_without_its_staging_folder_is_fenced_and_makes_nothing(storage: Storage) -> None:
    with pytest.raises(GoneError):
        storage.publish("s", "part/file", b"data")
    assert storage.walk("") == []
    assert not storage.exists("s")


def test_publish_after_the_staging_folder_was_renamed_away_is_fenced(storage: Storage) -> None:
    storage.make_dir("s")
    storage.rename("s", "void")
    with pytest.raises(GoneError):
        storage.publish("s", "file", b"data")
    assert not storage.exists("file")
    assert not storage.exists("s")


def test_publish_of_an_existing_file_from_a_gone_folder_is_fenced_first(storage: Storage) -> None:
    storage.create("file", b"first")
    with pytest.raises(GoneError):
        storage.publish("s", "file", b"late")


def test_publish_with_overwrite_takes_the_place_of_a_file_behind_the_same_fence(storage: Storage) -> None:
    storage.make_dir("s")
    storage.sync_dir("none")
    storage.sync_dir("s")
    storage.create("lock", b"old")
    storage.publish("s", "lock", b"new", overwrite=True)
    assert storage.read("lock") == b"new"
    storage.rename("s", "void")
    with pytest.raises(GoneError):
        storage.publish("s", "lock", b"late", overwrite=True)
    assert storage.read("lock") == b"new"
    assert storage.list("void") == []


def test_a_file_that_is_written_in_pieces_gets_its_name_by_a_link(storage: Storage) -> None:
    storage.make_dir("s")
    pieces = storage.write_in_pieces("s", "growing")
    for piece in (b"one ", memoryview(b"two ")):
        pieces.write(piece)
    storage.rename("s", "moved")
    pieces.write(b"three")
    pieces.close()
    pieces.discard()
    storage.link("moved/growing", "part/ition/file")
    assert storage.read("part/ition/file") == storage.read("moved/growing") == b"one two three"
    storage.delete_tree("moved")
    assert storage.read("part/ition/file") == b"one two three"


def test_pieces_begin_in_a_folder_that_is_there_and_replace_nothing(storage: Storage) -> None:
    with pytest.raises(GoneError):
        storage.write_in_pieces("s", "growing")
    assert not storage.exists("s")
    storage.make_dir("s")
    pieces = storage.write_in_pieces("s", "growing")
    with pytest.raises(AlreadyExistsError):
        storage.write_in_pieces("s", "growing")
    for _ in range(2):
        pieces.discard()
        assert storage.list("s") == []


def test_a_link_replaces_nothing_and_needs_its_file(storage: Storage) -> None:
    storage.create("s/staged", b"data")
    storage.create("file", b"first")
    with pytest.raises(AlreadyExistsError):
        storage.link("s/staged", "file")
    storage.rename("s", "void")
    with pytest.raises(GoneError):
        storage.link("s/staged", "part/file")
    assert storage.read("file") == b"first"
    assert not storage.exists("part/file")
