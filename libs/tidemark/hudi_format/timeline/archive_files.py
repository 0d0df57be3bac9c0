"""The files of an archived timeline (FORMAT.md, section 3.8), and what is kept of them in memory.

`history/_version_` holds the number of the newest manifest. `manifest_<n>` is JSON with the names of Parquet
files, `<first>_<last>_<level>.parquet`: the requested times of the first and the last row, and the level in
the LSM tree. Rows are {instantTime, completionTime, action, metadata, plan, version}, about 3 KiB each; a
table with a commit a second adds 86 400 of them a day. So nothing here reads the whole archive:

* A file that a manifest names never gets another content. So what was read of it is kept by its name, until a
  manifest does not name it any more.
* Of each file the range of each row group is kept (its footer's statistics), of the row groups that somebody
  asked about the times and actions, `_ROWS_KEPT_MAX` rows of all files together. Contents are never kept.

`_version_` may be missing or hold no number (an archiver died while it wrote it): then the newest manifest in
the folder counts, as for Hudi.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, damage_in
from tidemark.hudi_format.parquet_files import open_parquet, parquet_damage
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline.archive_actions import read_actions

VERSION_NAME: Final = "_version_"
EVER: Final = ("", "\uffff")
_MANIFEST: Final = re.compile(r"manifest_(\d+)$", re.ASCII)
_DATA_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet$", re.ASCII)
_VERSION_DIGITS_MAX: Final = 18
_ROWS_KEPT_MAX: Final = 200_000
_TIMES: Final = ("instantTime", "completionTime", "action")
_CONTENTS: Final = (*_TIMES, "metadata", "plan")
_CONTENT_ROWS: Final = 64
_BUFFER_BYTES: Final = 1 << 20
_TYPES: Final = {name: pa.binary() if name in ("metadata", "plan") else pa.string() for name in _CONTENTS}

Range = tuple[str, str]
"""The least and the greatest of some texts; `EVER` when they are not known."""
_T = TypeVar("_T")


class ArchivedInstant(NamedTuple):
    """One archived instant; `action` is the word in the completed file's name (compaction: 'commit')."""

    requested: str
    completion: str
    action: str
    metadata: bytes
    plan: bytes


class ArchiveFile(NamedTuple):
    """One file of a manifest. `size` in bytes, None where an older manifest does not say it."""

    name: str
    size: int | None = None

    @property
    def range(self) -> Range:
        """Requested times of its first and last row."""
        found = _DATA_FILE.match(self.name)
        return (found[1], found[2]) if found else EVER

    @property
    def level(self) -> int | None:
        """Its level in the LSM tree; None for a name that is not Hudi's."""
        found = _DATA_FILE.match(self.name)
        return int(found[3]) if found else None


class Manifest(NamedTuple):
    """`version`: None when nothing was archived yet."""

    version: int | None
    files: tuple[ArchiveFile, ...]

    def encode(self) -> bytes:
        """The bytes of `manifest_<version>`, as Hudi writes them. All sizes have to be known."""
        entries = (
            f'{{\n    "fileName" : {json.dumps(file.name)},\n    "fileLen" : {file.size}\n  }}'
            for file in self.files
        )
        return f'{{\n  "files" : [ {", ".join(entries)} ]\n}}'.encode()


def manifest_name(version: int) -> str:
    """The name of the manifest with this number."""
    return f"manifest_{version}"


def manifest_version(name: str) -> int | None:
    """The number of the manifest with this name; None when it is no manifest's."""
    found = _MANIFEST.match(name)
    return int(found[1]) if found else None


def data_file_name(first: str, last: str, level: int) -> str:
    """The name of the file whose rows begin and end with these requested times."""
    return f"{first}_{last}_{level}.parquet"


def is_data_file(name: str) -> bool:
    """Whether a file of the folder holds rows."""
    return _DATA_FILE.match(name) is not None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a file: the ranges of its columns, as the footer has them."""

    file: ArchiveFile
    number: int
    rows: int
    requested: Range
    completion: Range
    action: Range


@dataclass(frozen=True, slots=True)
class Rows:
    """Times and actions of one row group, by requested time. Rows without one of the times are left out."""

    requested: tuple[str, ...]
    completion: tuple[str, ...]
    actions: tuple[str, ...]

    def between(self, span: Range) -> range:
        """The numbers of the rows with requested times in [first, last]."""
        return range(bisect_left(self.requested, span[0]), bisect_right(self.requested, span[1]))

    def of(self, number: int) -> tuple[str, str, str]:
        """Requested time, completion time and action of a row."""
        return self.requested[number], self.completion[number], self.actions[number]


def touches(one: Range, other: Range) -> bool:
    """Whether two ranges have a text in common."""
    return one[0] <= other[1] and other[0] <= one[1]


class KeptArchive:
    """The files of one archive folder. Several threads may use it.

    All methods that read raise CorruptFileError, and FileMissingError for a file that was merged into another
    one since the manifest was read.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._manifest: tuple[bytes, Manifest] = (b"", Manifest(None, ()))
        self._groups: dict[str, tuple[RowGroup, ...]] = {}
        self._rows: OrderedDict[tuple[str, int], Rows] = OrderedDict()
        self._rows_kept = 0
        self._derived: dict[tuple[str, object], Any] = {}

    def manifest(self, storage: Storage, folder: str) -> Manifest:
        """The newest manifest."""
        version = newest_version(storage, folder)
        return self.read(storage, folder, version) if version is not None else Manifest(None, ())

    def read(self, storage: Storage, folder: str, version: int) -> Manifest:
        """The manifest with this number."""
        path = join_path(folder, manifest_name(version))
        content = storage.read(path)
        with self._mutex:
            # An archiver that died may leave a manifest that the next one replaces, under the same number.
            if self._manifest[0] == content and self._manifest[1].version == version:
                return self._manifest[1]
        manifest = _decoded(version, content, path)
        names = {file.name for file in manifest.files}
        with self._mutex:
            self._manifest = (content, manifest)
            self._groups = {name: groups for name, groups in self._groups.items() if name in names}
            self._derived = {key: derived for key, derived in self._derived.items() if key[0] in names}
            for key in [row for row in self._rows if row[0] not in names]:
                self._rows_kept -= len(self._rows.pop(key).requested)
        return manifest

    def groups(self, storage: Storage, folder: str, file: ArchiveFile) -> tuple[RowGroup, ...]:
        """The row groups of a file."""
        found = self._groups.get(file.name)
        if found is None:
            path = join_path(folder, file.name)
            with _opened(storage, path) as parquet, parquet_damage(path):
                found = tuple(_groups_of(file, parquet.metadata))
            self._groups[file.name] = found
        return found

    def may_have(self, storage: Storage, folder: str, file: ArchiveFile, action: str) -> bool:
        """Whether a row of the file may have this action: by what it says itself (`archive_actions`), else by
        its footer. It looks at nothing else there, and keeps nothing: where the answer is no, as of nearly
        all files, `groups` would take four times as long.
        """
        kept = self._groups.get(file.name)
        if kept is not None:
            return any(touches(group.action, (action, action)) for group in kept)
        path = join_path(folder, file.name)
        with storage.open_input(path) as source, parquet_damage(path):
            said = read_actions(source)
            if said is not None:
                return action in said
            metadata = pq.read_metadata(source)
            column = _columns(metadata)[_TIMES.index("action")]
            ranges = (
                _range_of(metadata.row_group(number), column) for number in range(metadata.num_row_groups)
            )
            return any(touches(actions, (action, action)) for actions in ranges)

    def rows(self, storage: Storage, folder: str, group: RowGroup) -> Rows:
        """Times and actions of the rows of a row group."""
        key = (group.file.name, group.number)
        with self._mutex:
            if key in self._rows:
                self._rows.move_to_end(key)
                return self._rows[key]
        path = join_path(folder, group.file.name)
        with _opened(storage, path) as parquet, parquet_damage(path):
            found = _sorted_rows(_typed(parquet.read_row_group(group.number, list(_TIMES)), path, group))
        with self._mutex:
            if key not in self._rows:
                self._rows[key] = found
                self._rows_kept += len(found.requested)
            while self._rows_kept > _ROWS_KEPT_MAX and len(self._rows) > 1:
                self._rows_kept -= len(self._rows.popitem(last=False)[1].requested)
        return found

    def contents(
        self, storage: Storage, folder: str, group: RowGroup, span: Range
    ) -> Iterator[ArchivedInstant]:
        """The instants of a row group with requested times in [first, last], with metadata and plan. A part
        of the row group is in memory at a time.
        """
        path = join_path(folder, group.file.name)
        with _opened(storage, path, buffer_size=_BUFFER_BYTES) as parquet, parquet_damage(path):
            batches = parquet.iter_batches(_CONTENT_ROWS, [group.number], list(_CONTENTS), use_threads=False)
            for batch in batches:
                rows = _typed(pa.Table.from_batches([batch]), path, None)
                for row in rows.to_pylist():
                    requested, completion = row["instantTime"], row["completionTime"]
                    if requested and completion and span[0] <= requested <= span[1]:
                        yield ArchivedInstant(
                            requested,
                            completion,
                            row["action"] or "",
                            row["metadata"] or b"",
                            row["plan"] or b"",
                        )

    def derived(self, file: ArchiveFile, of: object, make: Callable[[], _T]) -> _T:
        """What `make` makes of a file, made once. It has to be small."""
        key = (file.name, of)
        if key not in self._derived:
            self._derived[key] = make()
        result: _T = self._derived[key]
        return result


def newest_version(storage: Storage, folder: str) -> int | None:
    """The number of the newest manifest; None when there is none."""
    try:
        text = storage.read(join_path(folder, VERSION_NAME))
    except FileMissingError:
        text = b""
    if text.strip().isdigit() and len(text) <= _VERSION_DIGITS_MAX:
        return int(text)
    versions = (manifest_version(name) for name in storage.names(folder))
    return max((version for version in versions if version is not None), default=None)


def _decoded(version: int, content: bytes, path: str) -> Manifest:
    with damage_in(path, "the manifest of the archived timeline"):
        files = tuple(
            ArchiveFile(str(entry["fileName"]), _size(entry.get("fileLen")))
            for entry in json.loads(content)["files"]
        )
        if any("/" in file.name or not file.name.isprintable() for file in files):
            raise ValueError("a file name with '/' or a control character")
    return Manifest(version, files)


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


@contextmanager
def _opened(storage: Storage, path: str, **options: Any) -> Iterator[pq.ParquetFile]:
    with storage.open_input(path) as source:
        yield open_parquet(source, path, **options)


def _groups_of(file: ArchiveFile, metadata: pq.FileMetaData) -> Iterator[RowGroup]:
    columns = _columns(metadata)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        requested, completion, action = (_range_of(group, column) for column in columns)
        yield RowGroup(file, number, group.num_rows, requested, completion, action)


def _columns(metadata: pq.FileMetaData) -> list[int | None]:
    """The numbers of the columns `_TIMES`."""
    names = [metadata.schema.column(number).name for number in range(metadata.num_columns)]
    return [names.index(name) if name in names else None for name in _TIMES]


def _range_of(group: pq.RowGroupMetaData, column: int | None) -> Range:
    statistics = group.column(column).statistics if column is not None else None
    if statistics is None or not statistics.has_min_max:
        return EVER
    least, greatest = statistics.min, statistics.max
    return (least, greatest) if isinstance(least, str) and isinstance(greatest, str) else EVER


def _typed(table: pa.Table, path: str, group: RowGroup | None) -> pa.Table:
    if group is not None and table.num_rows != group.rows:
        raise ValueError(f"{table.num_rows} rows in row group {group.number}, the footer says {group.rows}")
    expected: Sequence[str] = _TIMES if group is not None else _CONTENTS
    if table.column_names != list(expected):
        raise CorruptFileError(f"{path} has the columns {table.column_names}, {list(expected)} were expected")
    # A full validation: Parquet does not check that text is UTF-8, and bad text would fail much later.
    table.validate(full=True)
    return table.cast(pa.schema([(name, _TYPES[name]) for name in expected]))


def _sorted_rows(table: pa.Table) -> Rows:
    requested, completion, action = (column.to_pylist() for column in table.columns)
    rows = [row for row in zip(requested, completion, action, strict=True) if row[0] and row[1]]
    rows.sort(key=lambda row: row[0])
    shared: dict[str, str] = {}
    return Rows(
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        tuple(shared.setdefault(row[2] or "", row[2] or "") for row in rows),
    )
