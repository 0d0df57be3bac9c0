"""The archive of a timeline as anybody finds it: read here, without the product's code.

`history/_version_` holds the number of the manifest that counts, and that names the Parquet files. Hudi takes
the newest manifest where that file is missing: it is deleted before it is written anew. A row is a completed
instant with the bytes of its file. Instants are in the archive before their files go.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

_COLUMNS: Final = ("instantTime", "completionTime", "action", "metadata")
_MANIFEST: Final = re.compile(r"manifest_(\d+)")
_TRIES: Final = 50
_PAUSE_S: Final = 0.1


class ArchivedInstant(NamedTuple):
    """`action`: as in the name of the completed file. `content`: that file's."""

    requested: str
    completion: str
    action: str
    content: bytes


def archive_version(table: Path, timeline: str) -> int:
    """The number of the manifest that counts, another one whenever the archive has changed; 0 without one."""
    history = table / timeline / "history"
    try:
        return int((history / "_version_").read_text())
    except (FileNotFoundError, ValueError):
        found = map(_MANIFEST.fullmatch, os.listdir(history) if history.is_dir() else ())
        return max((int(name[1]) for name in found if name), default=0)


def archived(table: Path, timeline: str) -> list[ArchivedInstant]:
    """All of them. Files that become one of the next level go while this reads: then it begins again."""
    for _ in range(_TRIES):
        try:
            return _read(table / timeline / "history", archive_version(table, timeline))
        except FileNotFoundError:
            time.sleep(_PAUSE_S)
    raise AssertionError(f"{timeline}: the archive names files that are not there")


def _read(history: Path, version: int) -> list[ArchivedInstant]:
    if not version:
        return []
    manifest: Any = json.loads((history / f"manifest_{version}").read_text())
    names = [each["fileName"] for each in manifest["files"]]
    found = (pq.read_table(history / name, columns=list(_COLUMNS)).to_pylist() for name in names)
    return [ArchivedInstant(*(row[column] for column in _COLUMNS)) for rows in found for row in rows]
