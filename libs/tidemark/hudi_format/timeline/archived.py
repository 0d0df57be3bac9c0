"""Reads the archived timeline: instants that Hudi moved out of the active one (FORMAT.md, section 3.8).

`history/_version_` holds the number of the newest manifest. `manifest_<n>` is JSON with the names of Parquet
files, whose rows are {instantTime, completionTime, action, metadata, plan, version}; metadata and plan are
the bytes of the completed and of the requested file. An empty or missing folder is valid. Special cases:

* `_version_` is missing or holds no number (an archiver died while it wrote it): the newest manifest in the
  folder counts, as for Hudi.
* An instant is in several files: an archiver that finds another one's unfinished work writes it again.
* A file is gone: Hudi merges these files (they form an LSM tree), so a newer manifest exists, and reading
  starts again.

This library never writes the archive.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError, damage_in
from tidemark.hudi_format.parquet_files import open_parquet, parquet_damage, read_columns
from tidemark.hudi_format.storage.base import Storage, join_path

_READ_ATTEMPTS_MAX: Final = 5
_MANIFEST: Final = re.compile(r"manifest_(\d+)$", re.ASCII)
_VERSION_DIGITS_MAX: Final = 18
_COLUMNS: Final = {
    "instantTime": pa.string(),
    "completionTime": pa.string(),
    "action": pa.string(),
    "metadata": pa.binary(),
    "plan": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """One archived instant; `action` is the word in the completed file's name (compaction: 'commit')."""

    requested: str
    completion: str
    action: str
    metadata: bytes
    plan: bytes


class ArchivedTimeline:
    """Reads the archive below `<root>/timeline/history` when asked, and caches the completion times.

    All methods that read it raise CorruptFileError, and FileMissingError when its files keep changing.
    """

    def __init__(self, storage: Storage, root: str = ".hoodie") -> None:
        self._storage = storage
        self._folder = join_path(root, "timeline", "history")
        self._completions: dict[str, str] | None = None

    def completion_times(self) -> dict[str, str]:
        """Requested time -> completion time of every archived instant; read once."""
        if self._completions is None:
            table = self._read(["instantTime", "completionTime"])
            rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
            known = sorted(
                ((requested, completion) for requested, completion in rows if completion), reverse=True
            )
            # Of two completion times of one instant the earlier one counts, as on the active timeline.
            self._completions = {requested: completion for requested, completion in known if requested}
        return self._completions

    def identities(self) -> frozenset[str]:
        """The identity of every archived instant (see `timeline.identity`)."""
        table = self._read(["instantTime", "completionTime", "action"])
        names = ("instantTime", "completionTime", "action")
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        return frozenset(f"{row[0]}_{row[1]}.{row[2]}" for row in rows if all(row))

    def newest_manifest(self) -> int | None:
        """The number of the newest manifest, which grows with each archival; None when there is no
        archive.
        """
        return self._version()

    def instants(self, from_requested: str = "", to_requested: str = "\uffff") -> list[ArchivedInstant]:
        """The archived instants with a requested time in [from, to], in that order, with metadata and plan.

        Of a file without such an instant only the times are read.
        """
        columns = ["instantTime", "completionTime", "action", "metadata", "plan"]
        table = self._read(columns, (from_requested, to_requested))
        archived = [
            ArchivedInstant(
                row["instantTime"],
                row["completionTime"],
                row["action"] or "",
                row["metadata"] or b"",
                row["plan"] or b"",
            )
            for row in table.to_pylist()
            if row["instantTime"]
            and row["completionTime"]
            and from_requested <= row["instantTime"] <= to_requested
        ]
        archived.sort(key=lambda instant: instant.completion, reverse=True)
        distinct = {(each.requested, each.action): each for each in archived}
        return sorted(distinct.values(), key=lambda instant: instant.requested)

    def _read(self, columns: list[str], between: tuple[str, str] | None = None) -> pa.Table:
        looked: list[tuple[int | None, FileMissingError]] = []
        for _ in range(_READ_ATTEMPTS_MAX):
            version = self._version()
            try:
                return self._read_manifest(version, columns, between)
            except FileMissingError as missing:
                looked.append((version, missing))
        version, error = looked[-1]
        if any(each != version for each, _ in looked):
            raise FileMissingError(f"{self._folder}: its files keep changing while they are read") from error
        # Hudi publishes a manifest before it deletes the files of the former one.
        raise CorruptFileError(
            f"{self._folder}: a file that _version_ and manifest_{version} name does not exist: {error}"
        ) from error

    def _read_manifest(
        self, version: int | None, columns: list[str], between: tuple[str, str] | None
    ) -> pa.Table:
        if version is None:
            return pa.table({column: pa.array([], pa.string()) for column in columns})
        manifest_path = join_path(self._folder, f"manifest_{version}")
        content = self._storage.read(manifest_path)
        with damage_in(manifest_path, "the manifest of the archived timeline"):
            names = [str(entry["fileName"]) for entry in json.loads(content)["files"]]
            if any("/" in name or not name.isprintable() for name in names):
                raise ValueError("a file name with '/' or a control character")
        if between is not None:
            names = [name for name in names if self._has_any(name, between)]
        tables = [self._read_file(name, columns) for name in names]
        if not tables:
            return pa.table({column: pa.array([], pa.string()) for column in columns})
        return pa.concat_tables(tables, promote_options="permissive")

    def _has_any(self, name: str, between: tuple[str, str]) -> bool:
        times = self._read_file(name, ["instantTime"]).column(0).to_pylist()
        return any(time and between[0] <= time <= between[1] for time in times)

    def _version(self) -> int | None:
        """The number of the newest manifest; None when there is none."""
        try:
            text = self._storage.read(join_path(self._folder, "_version_"))
        except FileMissingError:
            text = b""
        if text.strip().isdigit() and len(text) <= _VERSION_DIGITS_MAX:
            return int(text)
        names = (info.name for info in self._storage.list(self._folder))
        return max((int(found[1]) for name in names if (found := _MANIFEST.match(name))), default=None)

    def _read_file(self, name: str, columns: list[str]) -> pa.Table:
        path = join_path(self._folder, name)
        with self._storage.open_input(path) as source:
            table = read_columns(open_parquet(source, path), path, columns)
        if table.column_names != columns:
            raise CorruptFileError(f"{path} has the columns {table.column_names}, {columns} were expected")
        with parquet_damage(path):
            return table.cast(pa.schema([(name, _COLUMNS[name]) for name in columns]))
