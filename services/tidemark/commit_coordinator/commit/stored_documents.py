"""Documents that the decisions refer to, stored in the table's folder: write statuses, snapshots of the fold.

A document's name is the SHA-256 of its content, so storing the same content again changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import Final

from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT

STORE: Final = f"{ROOT}/store"


def store_document(storage: Storage, content: bytes) -> tuple[str, str]:
    """Stores the document; returns (path, sha256). Raises CorruptFileError if the path has other content."""
    digest = hashlib.sha256(content).hexdigest()
    path = join_path(STORE, f"{digest}.json")
    try:
        storage.create(path, content)
    except AlreadyExistsError:
        load_document(storage, path, digest)
    return path, digest


def load_document(storage: Storage, path: str, sha256: str) -> bytes:
    """The document's content. Raises FileMissingError, CorruptFileError when its hash is not ``sha256``."""
    content = storage.read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CorruptFileError(f"{path} does not have the content that the decisions name (sha256 {sha256})")
    return content
