"""Folders that fence: a term's end takes all doors of its writers along."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
)
from tidemark.hudi_format.publication.folders import (
    ENDED,
    TERMS,
    attempt_dir,
    close_attempt,
    end_older_terms,
    open_attempt,
    open_term,
    remove_ended,
    term_dir,
)


@pytest.fixture
def storage() -> InMemoryStorage:
    return InMemoryStorage()


def test_an_attempt_is_opened_once_and_closed_for_good(storage: InMemoryStorage) -> None:
    open_term(storage, 3)
    path = open_attempt(storage, 3, 1, 1, "n1")
    assert path == attempt_dir(3, 1, 1) == open_attempt(storage, 3, 1, 1, "n2")
    storage.publish(path, "d/file", b"1")
    close_attempt(storage, 3, 1, 1)
    close_attempt(storage, 3, 1, 1)
    with pytest.raises(FencedOutError):
        storage.publish(path, "d/late", b"2")
    assert storage.list(term_dir(3)) == []


def test_a_term_is_opened_once_in_its_life(storage: InMemoryStorage) -> None:
    open_term(storage, 3)
    with pytest.raises(AlreadyExistsError):
        open_term(storage, 3)


def test_ending_older_terms_fences_their_writers_and_their_coordinator(storage: InMemoryStorage) -> None:
    for term in (3, 5, 7):
        open_term(storage, term)
    path = open_attempt(storage, 5, 1, 1, "n")
    end_older_terms(storage, 7)
    assert [info.name for info in storage.list(TERMS)] == ["7"]
    with pytest.raises(FencedOutError):
        storage.publish(path, "d/late", b"")
    with pytest.raises(FencedOutError, match="newer coordinator"):
        open_attempt(storage, 5, 1, 2, "n2")
    assert not storage.exists(term_dir(5)), "nobody makes the folder of a term that is over"
    end_older_terms(storage, 7)
    remove_ended(storage, 7)
    assert storage.list(ENDED) == []


def test_leftovers_on_their_way_into_older_terms_are_removed_and_newer_ones_stay(
    storage: InMemoryStorage,
) -> None:
    open_term(storage, 7)
    for name in ("fresh-5-a", "fresh-7-b", "fresh-9-c"):
        storage.create(f"{TERMS}/{name}/owner", b"")
    assert remove_ended(storage, 7) == 1
    assert [info.name for info in storage.list(TERMS)] == ["7", "fresh-7-b", "fresh-9-c"]
