"""Markers: which data files a running commit may have made, so that a rollback finds them (Hudi format
notes 5.1).

A marker is made before its file. Direct markers are empty files
`<root>/.temp/<instant>/<partition>/<data file>.marker.<CREATE|MERGE>`: CREATE for new base files and for
log files, MERGE for a rewritten base file. Hudi on Spark by default writes them in the other form (timeline
server): lists of the same names in `MARKERS<n>` beside a file `MARKERS.type`. That form is read here, never
written; it was only read in Hudi's sources.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hudi_format.errors import AlreadyExistsError, CorruptFileError
from hudi_format.storage.base import Storage, join_path
from hudi_format.timeline import DATA_ROOT

_INFIX: Final = ".marker."
_TYPE_FILE: Final = "MARKERS.type"


class MarkerType(Enum):
    """Whether the data file is new or takes the place of an older version of its file group."""

    CREATE = "CREATE"
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """One data file that a commit announced; `data_path` is relative to the table's base (or the metadata
    table's).
    """

    data_path: str
    marker_type: str


def marker_folder(instant: str, root: str = DATA_ROOT) -> str:
    """The folder that holds an instant's markers."""
    return join_path(root, ".temp", instant)


def create_marker(
    storage: Storage,
    instant: str,
    data_path: str,
    marker_type: MarkerType,
    root: str = DATA_ROOT,
    *,
    staging_dir: str | None = None,
) -> None:
    """Announces a data file; repeatable. `data_path` is `<partition>/<file name>`, relative to the base.

    With `staging_dir` a writer whose attempt is void leaves no marker behind: raises `StagingGoneError`.
    """
    path = join_path(marker_folder(instant, root), f"{data_path}{_INFIX}{marker_type.value}")
    with contextlib.suppress(AlreadyExistsError):
        if staging_dir is None:
            storage.create(path, b"")
        else:
            storage.publish(staging_dir, path, b"")


def list_markers(storage: Storage, instant: str, root: str = DATA_ROOT) -> list[Marker]:
    """All markers of an instant, of both forms, ordered by data path; empty when there are none."""
    folder = marker_folder(instant, root)
    found: set[Marker] = set()
    for info in storage.walk(folder):
        below = info.path.removeprefix(f"{folder}/")
        if below == _TYPE_FILE or info.name.endswith(".crc"):
            continue
        if "/" not in below and below.startswith("MARKERS"):
            lines = storage.read(info.path).decode().splitlines()
            found.update(_parse(line.strip(), info.path) for line in lines if line.strip())
        else:
            found.add(_parse(below, info.path))
    return sorted(found)


def delete_markers(storage: Storage, instant: str, root: str = DATA_ROOT) -> int:
    """Removes the instant's marker folder; returns how many files it held."""
    return storage.delete_tree(marker_folder(instant, root))


def _parse(name: str, path: str) -> Marker:
    data_path, infix, kind = name.rpartition(_INFIX)
    if not infix or not data_path:
        raise CorruptFileError(f"{path}: {name!r} is no marker <data file>.marker.<type>")
    return Marker(data_path, kind)
