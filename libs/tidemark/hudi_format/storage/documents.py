"""The small documents that Tidemark keeps with a table: JSON of a known type, and single names.

::

    .hoodie/.aux/tidemark/
        served-by             name of the coordinator that took the table over last
        sign-of-life          changes every few seconds while a coordinator serves
        reader-deaths.json    where readers of the input died, and how often
        store/<sha256>.json   content-addressed documents (write statuses, fold snapshots)

A document that is no UTF-8 or no JSON, has a field of another type, is nested too deeply or is longer than
`DOCUMENT_BYTES_MAX` raises a `CorruptFileError` that names the file.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.storage.base import Storage

ROOT: Final = ".hoodie/.aux/tidemark"
DOCUMENT_BYTES_MAX: Final = 64 << 20
"""Far more than any document needs: the largest have one entry per lane and input partition."""

_T = TypeVar("_T")


def read_document(storage: Storage, path: str, kind: type[_T]) -> _T:
    """The JSON document at `path`, as a `kind`. Raises FileMissingError, CorruptFileError."""
    content = _read(storage, path)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(storage, path, str(error)) from error


def read_text(storage: Storage, path: str) -> str:
    """The UTF-8 text at `path`. Raises FileMissingError, CorruptFileError."""
    try:
        return _read(storage, path).decode()
    except UnicodeDecodeError as error:
        raise _damaged(storage, path, str(error)) from error


def _read(storage: Storage, path: str) -> bytes:
    with storage.open_input(path) as source:
        content = bytes(source.read(DOCUMENT_BYTES_MAX + 1))
    if len(content) > DOCUMENT_BYTES_MAX:
        raise _damaged(storage, path, f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return content


def _damaged(storage: Storage, path: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{storage.base_uri}/{path} is damaged ({why[:300]})")
