"""Opens the storage for a table's location, as the configuration gives it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.storage.local import LocalStorage

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


@lru_cache(maxsize=64)
def open_storage(uri: str) -> LocalStorage:
    """The storage of a table at `uri`: a path, or a `file:` URI of this machine. A process has one for each,
    so that a task finds what an earlier one has read (`timeline.load_timeline`).

    Raises `UnsupportedTableError` for every other scheme: publishing rests on `link()` and `rename()` of a
    POSIX file system, which object stores do not have.
    """
    if not uri:
        raise UnsupportedTableError("the table's location is empty", "Set table.path in the configuration")
    if not _SCHEME.match(uri):
        return LocalStorage(uri)
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return LocalStorage(unquote(parts.path))
    raise UnsupportedTableError(
        f"the table's location {uri!r} is not on a local file system",
        "Use a path on a local or mounted POSIX file system: object stores are not supported by this release",
    )
