"""Documents that the decisions name."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.commit_coordinator.commit.stored_documents import STORE, load_document, store_document
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError


def test_documents_are_named_by_their_content() -> None:
    storage = InMemoryStorage()
    path, digest = store_document(storage, b"report")
    assert store_document(storage, b"report") == (path, digest)
    assert load_document(storage, path, digest) == b"report"
    storage.replace(path, b"repor")
    with pytest.raises(CorruptFileError, match=digest):
        load_document(storage, path, digest)
    with pytest.raises(CorruptFileError):
        store_document(storage, b"report")
    storage.delete(path)
    with pytest.raises(FileMissingError):
        load_document(storage, path, digest)
    assert path.startswith(STORE)
