"""Markers: which data files a running commit may have made, so that a rollback finds them (FORMAT.md,
section 8.3).

A marker is made before its file: CREATE for new base files and for log files, MERGE for a rewritten base
file. There are two forms, and Hudi's rollback takes both (tests/interop):

- direct: an empty file `<root>/.temp/<instant>/<partition>/<data file>.marker.<CREATE|MERGE>` each;
- listed, as Hudi on Spark writes them through its timeline server: the same names as lines of
  `<root>/.temp/<instant>/MARKERS<n>`, beside a file `MARKERS.type`. One file for many data files: that many
  folders and syncs less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidemark.hudi_format.errors import (
    CorruptFileError,
    FileMissingError,
    TimelineConflictError,
    damage_in,
)
from tidemark.hudi_format.publication.port import Attempt
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT

_INFIX: Final = ".marker."
_LIST_FILE: Final = "MARKERS"
_TYPE_FILE: Final = "MARKERS.type"
_LISTED: Final = b"TIMELINE_SERVER_BASED"


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
    by: Attempt, instant: str, data_path: str, marker_type: MarkerType, root: str = DATA_ROOT
) -> None:
    """Announces a data file; repeatable. `data_path` is `<partition>/<file name>`, relative to the base.

    A writer whose attempt is void leaves no marker behind: raises `FencedOutError`.
    """
    path = join_path(marker_folder(instant, root), f"{data_path}{_INFIX}{marker_type.value}")
    by.put_pending(path, b"")


def create_marker_list(
    by: Attempt, instant: str, number: int, announced: Iterable[Marker], root: str = DATA_ROOT
) -> None:
    """Announces all data files of one writer in its own list, `MARKERS<number>`; repeatable with the same
    ones.

    Raises `TimelineConflictError` when the list exists and lacks one of them, `FencedOutError` as
    `create_marker`. An instant has markers of one form only: Hudi looks for lists, or else for single files.
    """
    folder = marker_folder(instant, root)
    lines = [f"{each.data_path}{_INFIX}{each.marker_type}\n" for each in sorted(announced)]
    path = join_path(folder, f"{_LIST_FILE}{number}")
    for name, content in ((join_path(folder, _TYPE_FILE), _LISTED), (path, "".join(lines).encode())):
        by.put_pending(name, content)
    missing = set(lines).difference(_text(by.storage.read(path), path).splitlines(keepends=True))
    if missing:
        raise TimelineConflictError(f"{path} exists and does not announce {min(missing).strip()}")


def list_markers(storage: Storage, instant: str, root: str = DATA_ROOT) -> list[Marker]:
    """All markers of an instant, of both forms, ordered by data path; empty when there are none."""
    folder = marker_folder(instant, root)
    found: set[Marker] = set()
    for info in storage.walk(folder):
        below = info.path.removeprefix(f"{folder}/")
        if below == _TYPE_FILE or info.name.endswith(".crc"):
            continue
        if "/" not in below and below.startswith(_LIST_FILE):
            lines = _text(storage.read(info.path), info.path).splitlines()
            found.update(_parse(line.strip(), info.path) for line in lines if line.strip())
        else:
            found.add(_parse(below, info.path))
    return sorted(found)


def announced_files(storage: Storage, instant: str, number: int, root: str = DATA_ROOT) -> list[str] | None:
    """The data files that the list `MARKERS<number>` announces, None while there is no such list."""
    path = join_path(marker_folder(instant, root), f"{_LIST_FILE}{number}")
    try:
        content = storage.read(path)
    except FileMissingError:
        return None
    return [line.rpartition(_INFIX)[0] for line in _text(content, path).splitlines() if line.strip()]


def delete_markers(storage: Storage, instant: str, root: str = DATA_ROOT) -> int:
    """Removes the instant's marker folder; returns how many files it held."""
    return storage.delete_tree(marker_folder(instant, root))


def _text(content: bytes, path: str) -> str:
    with damage_in(path, "the list of markers"):
        return content.decode()


def _parse(name: str, path: str) -> Marker:
    data_path, infix, kind = name.rpartition(_INFIX)
    if not infix or not data_path:
        raise CorruptFileError(f"{path}: {name!r} is no marker <data file>.marker.<type>")
    return Marker(data_path, kind)
