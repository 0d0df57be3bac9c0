"""Markers name the data files that a running commit may have made, so that a rollback finds them (FORMAT.md,
section 8.3).

A marker is made before its data file: CREATE for new base files and for log files, MERGE for a rewritten base
file. There are two forms, and Hudi's rollback reads both (tests/interop):

- direct: one empty file `<root>/.temp/<instant>/<partition>/<data file>.marker.<CREATE|MERGE>` per data file;
- listed, as Hudi on Spark writes them through its timeline server: the same names as lines of
  `<root>/.temp/<instant>/MARKERS<n>`, beside a file `MARKERS.type`. One list stands for many data files, so
  it costs two files to sync, and no folder per partition.
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
    """CREATE: the data file is new. MERGE: it replaces an older base file of its file group."""

    CREATE = "CREATE"
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """One data file that a commit announced. `data_path` is relative to the base of the table or of the
    metadata table; `marker_type` is the text behind `.marker.`: another engine may write another than ours.
    """

    data_path: str
    marker_type: str


def marker_folder(instant: str, root: str = DATA_ROOT) -> str:
    """The folder that holds an instant's markers."""
    return join_path(root, ".temp", instant)


def create_marker(
    by: Attempt, instant: str, data_path: str, marker_type: MarkerType, root: str = DATA_ROOT
) -> None:
    """Announces one data file by a direct marker; repeatable. `data_path` is `<partition>/<file name>`,
    relative to the base.

    Raises `FencedOutError`, and makes nothing, when the attempt is void.
    """
    path = join_path(marker_folder(instant, root), f"{data_path}{_INFIX}{marker_type.value}")
    by.put_pending(path, b"")


def create_marker_list(
    by: Attempt, instant: str, number: int, announced: Iterable[Marker], root: str = DATA_ROOT
) -> None:
    """Announces all data files of one writer in its own list, `MARKERS<number>`; repeatable with the same
    files. Do not mix it with `create_marker` in one instant: where Hudi finds `MARKERS.type` it reads lists
    only.

    Raises `TimelineConflictError` when the list exists and lacks one of the files, `FencedOutError` when the
    attempt is void.
    """
    folder = marker_folder(instant, root)
    lines = [f"{marker.data_path}{_INFIX}{marker.marker_type}\n" for marker in sorted(announced)]
    path = join_path(folder, f"{_LIST_FILE}{number}")
    for name, content in ((join_path(folder, _TYPE_FILE), _LISTED), (path, "".join(lines).encode())):
        by.put_pending(name, content)
    missing = set(lines).difference(_text(by.storage.read(path), path).splitlines(keepends=True))
    if missing:
        raise TimelineConflictError(f"{path} exists and does not announce {min(missing).strip()}")


def list_markers(storage: Storage, instant: str, root: str = DATA_ROOT) -> list[Marker]:
    """All markers of an instant, of both forms, ordered by data path; empty when there are none.

    Raises `CorruptFileError` for a list that is no UTF-8, and for a name that is no marker.
    """
    folder = marker_folder(instant, root)
    markers: set[Marker] = set()
    for info in storage.walk(folder):
        below = info.path.removeprefix(f"{folder}/")
        if below == _TYPE_FILE or info.name.endswith(".crc"):
            continue
        if "/" not in below and below.startswith(_LIST_FILE):
            lines = _text(storage.read(info.path), info.path).splitlines()
            markers.update(_parse(line.strip(), info.path) for line in lines if line.strip())
        else:
            markers.add(_parse(below, info.path))
    return sorted(markers)


def announced_files(storage: Storage, instant: str, number: int, root: str = DATA_ROOT) -> list[str] | None:
    """Paths of the data files that the list `MARKERS<number>` announces, None when there is no such list.

    Raises `CorruptFileError` for a list that is no UTF-8.
    """
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
