"""Properties, index definitions, markers, lock, verified state, snapshots and verdict as targets."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from testing.memory_storage import InMemoryStorage
from tests.fuzz.target import Target
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.verification.verdict import VerdictFile
from tidemark.hudi_format.commit.markers import list_markers
from tidemark.hudi_format.errors import CorruptFileError, CutOffFileError
from tidemark.hudi_format.index_definitions import read_index_definitions, record_index_kind
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.table_config import read_table_config
from tidemark.table_verification.verified_state import STATE_PATH, load_state

_INSTANT: Final = "20260101000000000"


def small_files(golden_file: Callable[[str, str], bytes]) -> list[Target]:
    """`golden_file(archive, path)`: what Hudi on Spark wrote."""
    body = json.dumps(
        {
            "version": 1,
            "as_of": _INSTANT,
            "rules": "r",
            "groups": [["p", "f", "x", 1, 2]],
            "shards": [[None, []]],
            "commits": {"data": [], "metadata": [], "last": None},
        }
    ).encode()
    state = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    markers = f".hoodie/.temp/{_INSTANT}"
    listed = b"p/a.parquet.marker.CREATE\np/b.parquet.marker.MERGE\n"
    return [
        Target(
            "table properties",
            ".hoodie/hoodie.properties",
            golden_file("slices/mor_long", ".hoodie/hoodie.properties"),
            _properties,
            False,
        ),
        Target(
            "index definitions",
            ".hoodie/.index_defs/index.json",
            golden_file("record_index/mor_global", "index.json"),
            _definitions,
            False,
        ),
        Target("list of markers", f"{markers}/MARKERS0", listed, _markers, False),
        Target("lock owner", ".hoodie/lock/owner", b'{"tidemark": {"term": 4, "nonce": "n"}}', _lock, False),
        Target("verified state", STATE_PATH, state, _state, False),
        Target("fold snapshot and statuses", ".hoodie/.aux/tidemark/d.json", b'{"a": [1, 2]}', _document),
        Target("verdict", "verdict.json", b'{"table": "t", "answer": {}}', _verdict, False),
    ]


def _properties(storage: InMemoryStorage, path: str) -> int:
    return len(read_table_config(storage).properties)


def _definitions(storage: InMemoryStorage, path: str) -> int:
    """Hudi writes the file in place: one that may be cut off is to be read again, and no other one."""
    try:
        found = read_index_definitions(storage)
    except CutOffFileError as error:
        if _is_open(storage.read(path).decode("utf-8", "replace")):
            raise CorruptFileError(str(error)) from error
        raise
    record_index_kind(found)
    return len(found)


def _is_open(text: str) -> bool:
    """Whether nothing has begun, or a letter, a string, an object or a list has, and has not ended."""
    depth, in_string, escaped = 0, False, False
    for letter in text:
        if in_string:
            in_string = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        else:
            in_string = letter == '"'
            depth += (letter in "{[") - (letter in "}]")
    return in_string or depth > 0 or not text.strip() or text.endswith("\ufffd")


def _markers(storage: InMemoryStorage, path: str) -> int:
    return len(list_markers(storage, _INSTANT))


def _lock(storage: InMemoryStorage, path: str) -> None:
    read_lock(storage)


def _state(storage: InMemoryStorage, path: str) -> int | None:
    found = load_state(storage)
    return None if found is None else len(found.groups)


def _document(storage: InMemoryStorage, path: str) -> int:
    sha256 = hashlib.sha256(b'{"a": [1, 2]}').hexdigest()
    return len(load_document(storage, path, sha256))


def _verdict(storage: InMemoryStorage, path: str) -> None:
    """It lies in a local folder, outside of the table."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "verdict.json"
        file.write_bytes(storage.read(path))
        VerdictFile(file, "t").load()
