"""The column stats of the table: a record of each indexed column for each file that a commit of ours writes,
in the metadata table's deltacommit of the same instant, by which no filter loses a row of it (`pruning`).

From then on the file has these records for as long as readers read it, by all records of the partition as
Hudi merges them: through compactions of the metadata table, cleans, and what other engines do. Who writes a
file may leave out all of its records, which readers then read always, and never some of them.

Stats that another engine changes or builds anew are not those that we keep: what is decided from then on
finds them taken out of the table's properties.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import fastavro

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.pruning import merged_record, record_faults, value_types
from tests.simulation.world.checkers.services import Entry, ServiceActions
from tests.simulation.world.checkers.table import METADATA_TIMELINE, Reader, View, parse_file
from tests.simulation.world.checkers.topics import Topics

_FOLDER: Final = ".hoodie/metadata/column_stats"
_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
_PROPERTIES: Final = ".hoodie/hoodie.properties"
_LISTED: Final = "hoodie.table.metadata.partitions="
_BUILDS_BELOW: Final = "1"
"""Instants that build a partition of the metadata table are small numbers, no times."""
_PLANS: Final = ("epoch_planned", "service_planned")
_DECISIONS: Final = ("commit_decided", "service_decided")


class ColumnStats:
    """``checked``: how many records were looked at as they are written, ``nulls``: … of files with nulls,
    ``merged``: as readers see them.
    """

    def __init__(self, reader: Reader, read: Callable[[str], bytes]) -> None:
        self._reader, self._read = reader, read
        self.checked = self.merged = self.nulls = 0
        # Path -> types of the columns, of each file that a commit of ours wrote with its records.
        self._kept: dict[str, Mapping[str, int]] = {}
        self._right: dict[tuple[str, str], dict[str, Any]] = {}
        self._changed_at: int | None = None

    @contextmanager
    def watched(self, topics: Topics) -> Iterator[None]:
        """Another engine acts: notes whether it changes the stats, and how many decisions there are then."""
        before = self._state()
        try:
            yield
        finally:
            after = self._state()
            if before is not None and after is not None:
                (columns, _), (columns_after, _) = before, after
                if columns != columns_after or after[1] - before[1]:
                    topics.follow()
                    self._changed_at = len(topics.decisions)

    def faults(
        self,
        instant: str,
        commit: Mapping[str, Any],
        decisions: Iterable[tuple[int, Entry]],
        view: View,
    ) -> Iterator[str]:
        """What is wrong with the stats after a commit, whose metadata is given; nothing where it is not ours.
        ``view``: the table after it.
        """
        columns = self._columns()
        if columns is None:
            self._kept.clear()
            self._changed_at = None
            return
        is_epoch = "tidemark.epoch" in (commit.get("extraMetadata") or {})
        if not is_epoch and instant not in ServiceActions(decisions).instants():
            return
        if self._changed_at is not None:
            if _decided_at(instant, decisions) >= self._changed_at:
                yield f"{instant} is decided with column stats that another engine changed"
            return
        yield from self._written(instant, commit, columns)
        yield from self._merged(view, columns)

    def _written(self, instant: str, commit: Mapping[str, Any], columns: list[str]) -> Iterator[str]:
        written = [stat for stats in commit["partitionToWriteStats"].values() for stat in stats]
        wanted = {stat["path"].rpartition("/")[2]: stat["path"] for stat in written}
        found = self._records(instant)
        types = value_types(commit["extraMetadata"]["schema"])
        self.checked += len(found)
        self.nulls += sum(record["nullCount"] > 0 for record in found)
        for name, path in wanted.items():
            records = [record for record in found if record["fileName"] == name]
            counts = Counter(record["columnName"] for record in records)
            if counts != Counter(columns):
                yield f"{path} has column stats of {dict(counts)}, and {columns} are indexed"
                continue
            if faults := list(self._outside(path, records, types)):
                yield from faults
            else:
                self._kept[path] = types
                self._right |= {(path, record["columnName"]): record for record in records}
        if others := {record["fileName"] for record in found} - wanted.keys():
            yield f"instant {instant} has column stats of {sorted(others)}, which it did not write"

    def _merged(self, view: View, columns: list[str]) -> Iterator[str]:
        """What readers find of the files that they read."""
        stored = self._stored(view)
        self.merged += len(stored)
        by_file: dict[str, set[str]] = {}
        for file, column in stored:
            by_file.setdefault(file, set()).add(column)
        for path in (file.path for _, files in view.merged for file in files):
            name = path.rpartition("/")[2]
            types, found = self._kept.get(path), by_file.get(name, set())
            if (types is not None or found) and (lacks := set(columns) - found):
                yield f"{path} has no column stats of {sorted(lacks)} any more, and of {sorted(found)}"
            elif types is not None:
                for column in columns:
                    record = stored[name, column]
                    if self._right.get((path, column)) != record:
                        yield from self._outside(path, [record], types)
                        self._right[path, column] = record

    def _stored(self, view: View) -> dict[tuple[str, str], dict[str, Any]]:
        """(file name, column) -> the living record, of all files that a reader merges."""
        found: dict[str, dict[str, Any] | None] = {}
        for _, files in view.stats:
            for file in files:
                for key, value in self._reader.index_entries(file.path):
                    record = None if value is None else _record(*value)
                    found[key] = merged_record(found.get(key), record)
        return {(each["fileName"], each["columnName"]): each for each in found.values() if each is not None}

    def _state(self) -> tuple[list[str], set[str]] | None:
        """The columns of the definition, and the instants of the folder's files that built it; None where the
        table has no stats.
        """
        columns = self._columns()
        if columns is None:
            return None
        files = (parse_file(name) for name in self._reader._names(_FOLDER))
        return columns, {each.instant for each in files if each and each.instant < _BUILDS_BELOW}

    def _columns(self) -> list[str] | None:
        if not self._reader.has(_PROPERTIES):
            return None
        lines = self._read(_PROPERTIES).decode().splitlines()
        listed = next((line.removeprefix(_LISTED) for line in lines if line.startswith(_LISTED)), "")
        if "column_stats" not in listed.split(","):
            return None
        definitions = json.loads(self._read(_DEFINITIONS))["indexDefinitions"]
        fields: list[str] = definitions["column_stats"]["sourceFields"]
        return fields

    def _records(self, instant: str) -> list[dict[str, Any]]:
        """Those of the log files that the deltacommit of the metadata table names."""
        names = self._reader._names(METADATA_TIMELINE)
        done = [each for each in names if each.startswith(f"{instant}_")]
        if not done:
            return []
        commit = decode.avro_document(self._read(f"{METADATA_TIMELINE}/{done[0]}"))
        named = commit["partitionToWriteStats"].get("column_stats", ())
        entries = [
            entry
            for stat in named
            for entry in self._reader.index_entries(f"{_FOLDER}/{stat['path'].rpartition('/')[2]}")
        ]
        return [_record(*value) for _, value in entries if value is not None]

    def _outside(
        self, path: str, records: Iterable[dict[str, Any]], types: Mapping[str, int]
    ) -> Iterator[str]:
        data = self._read(path)
        blocks = [data]
        if data.startswith(b"#HUDI#"):
            blocks = [each.content for each in decode.log_blocks(data) if each.kind == decode.PARQUET]
        for record in records:
            column = record["columnName"]
            values = [row[0] for each in blocks for row in decode.parquet_columns(each, [column])]
            for fault in record_faults(record, values, types):
                yield f"{path}: of the column stats of {column} {fault}"


@lru_cache(maxsize=4096)
def _record(value: bytes, schema: str) -> dict[str, Any]:
    """Not to be changed: equal bytes give the same one."""
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), decode._parsed(schema), None)
    found: dict[str, Any] = record["ColumnStatsMetadata"]
    return found


def _decided_at(instant: str, decisions: Iterable[tuple[int, Entry]]) -> int:
    """How many decisions there were before the one for our instant; -1 where there is none."""
    planned = set[tuple[Any, ...]]()
    for number, (_, entry) in enumerate(decisions):
        which = (entry.get("service"), entry.get("epoch"), entry.get("attempt"))
        if entry["type"] in _PLANS and entry.get("instant") == instant:
            planned.add(which)
        elif entry["type"] in _DECISIONS and which in planned:
            return number
    return -1
