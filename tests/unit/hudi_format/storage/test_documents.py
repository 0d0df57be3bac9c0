"""Small documents in the table's folder: whatever is wrong with one names the file."""

from __future__ import annotations

import msgspec
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.storage import documents
from tidemark.hudi_format.storage.documents import read_document, read_text


class _Kept(msgspec.Struct, frozen=True):
    name: str
    counts: dict[str, int] = {}


def test_a_document_is_read_by_its_type_and_unknown_fields_are_passed_over() -> None:
    storage = InMemoryStorage()
    storage.create("a/kept.json", '{"name": "é", "later": []}'.encode())
    storage.create("a/word", "é\n".encode())
    assert read_document(storage, "a/kept.json", _Kept) == _Kept("é")
    assert read_text(storage, "a/word") == "é\n"
    with pytest.raises(FileMissingError):
        read_document(storage, "a/none", _Kept)
    with pytest.raises(FileMissingError):
        read_text(storage, "a/none")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"name": "\xff"}',
        b'{"name": 3}',
        b'{"name": "x", "counts": {"a": "b"}}',
        b'{"name": "x", "later": ' + b"[" * 200_000,
    ],
)
def test_damage_names_the_file(content: bytes) -> None:
    storage = InMemoryStorage()
    storage.create("a/kept.json", content)
    with pytest.raises(CorruptFileError, match=r"/a/kept\.json is damaged \(.+\)"):
        read_document(storage, "a/kept.json", _Kept)


def test_text_that_is_no_utf8_names_the_file() -> None:
    storage = InMemoryStorage()
    storage.create("a/word", b"\xff")
    with pytest.raises(CorruptFileError, match=r"/a/word is damaged"):
        read_text(storage, "a/word")


def test_no_more_is_read_than_a_document_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "DOCUMENT_BYTES_MAX", 14)
    storage = InMemoryStorage()
    storage.create("fits", b'{"name": "xx"}')
    storage.create("longer", b'{"name": "xxx"}')
    assert read_document(storage, "fits", _Kept) == _Kept("xx")
    for read in (lambda: read_document(storage, "longer", _Kept), lambda: read_text(storage, "longer")):
        with pytest.raises(CorruptFileError, match="longer is damaged .*more than 14 bytes"):
            read()
