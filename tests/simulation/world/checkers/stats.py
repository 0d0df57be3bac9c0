"""The column stats that a commit of ours writes: a record of each indexed column for each file, in the
metadata table's deltacommit of the same instant, by which no filter loses a row of the file (`pruning`).
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import fastavro

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.pruning import record_faults, value_types
from tests.simulation.world.checkers.services import Entry, ServiceActions
from tests.simulation.world.checkers.table import DATA_TIMELINE, METADATA_TIMELINE, Reader

_FOLDER: Final = ".hoodie/metadata/column_stats"
_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
_PROPERTIES: Final = ".hoodie/hoodie.properties"
_FOLDER_PROPERTIES: Final = f"{_FOLDER}/.hoodie_partition_metadata"
_MADE_OF: Final = "tidemark.columns="
_LISTED: Final = "hoodie.table.metadata.partitions="


class ColumnStats:
    """``checked``: how many records were looked at."""

    def __init__(self, reader: Reader, read: Callable[[str], bytes]) -> None:
        self._reader, self._read = reader, read
        self.checked = 0
        self._complete: dict[str, dict[str, set[str]]] = {}

    def faults(
        self, instant: str, commit: Mapping[str, Any], decisions: Iterable[tuple[int, Entry]]
    ) -> Iterator[str]:
        """What is wrong with the stats of a commit, whose metadata is given; nothing where it is not ours."""
        is_epoch = "tidemark.epoch" in (commit.get("extraMetadata") or {})
        columns = self._columns()
        if columns is None or not (is_epoch or instant in ServiceActions(decisions).instants()):
            return
        yield from self._others_left_out(columns)
        written = [stat for stats in commit["partitionToWriteStats"].values() for stat in stats]
        wanted = {stat["path"].rpartition("/")[2]: stat["path"] for stat in written}
        found = self._records(instant)
        types = value_types(commit["extraMetadata"]["schema"])
        self.checked += len(found)
        for name, path in wanted.items():
            records = [record for record in found if record["fileName"] == name]
            counts = Counter(record["columnName"] for record in records)
            if counts != Counter(columns):
                yield f"{path} has column stats of {dict(counts)}, and {columns} are indexed"
                continue
            yield from self._outside(path, records, types)
        if others := {record["fileName"] for record in found} - wanted.keys():
            yield f"instant {instant} has column stats of {sorted(others)}, which it did not write"

    def _others_left_out(self, columns: Iterable[str]) -> Iterator[str]:
        """A file with records of some of the columns is left out of filters on the others: whose ever it is,
        none is there while the table lists column stats.
        """
        committed = {name.partition("_")[0] for name in self._reader._names(DATA_TIMELINE) if "_" in name}
        for name in self._reader._names(METADATA_TIMELINE):
            instant, _, done = name.partition("_")
            if instant not in committed or not done.endswith(".deltacommit"):
                continue
            if instant not in self._complete:
                of_files: dict[str, set[str]] = {}
                for record in self._records(instant):
                    of_files.setdefault(record["fileName"], set()).add(record["columnName"])
                self._complete[instant] = of_files
            for file, found in self._complete[instant].items():
                if lacks := set(columns) - found:
                    yield f"{file} of {instant} has no column stats of {sorted(lacks)}, and others"

    def _columns(self) -> list[str] | None:
        lines = self._read(_PROPERTIES).decode().splitlines()
        listed = next((line.removeprefix(_LISTED) for line in lines if line.startswith(_LISTED)), "")
        if "column_stats" not in listed.split(","):
            return None
        definitions = json.loads(self._read(_DEFINITIONS))["indexDefinitions"]
        fields: list[str] = definitions["column_stats"]["sourceFields"]
        # Of other columns than it was made of another engine makes something: it is taken out before our
        # next plan, and says nothing of what was decided before.
        own = self._read(_FOLDER_PROPERTIES).decode().splitlines()
        made_of = next((line.removeprefix(_MADE_OF) for line in own if line.startswith(_MADE_OF)), "")
        return fields if set(fields) >= {*made_of.split(",")} and made_of else None

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


def _record(value: bytes, schema: str) -> dict[str, Any]:
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), decode._parsed(schema), None)
    found: dict[str, Any] = record["ColumnStatsMetadata"]
    return found
