"""The record index and the column stats of a table as anybody finds them, record by record, and whether they
are those of its files.

Files are listed, put into slices and decoded here and by `tests/hudi_rules` and the simulation's decoders,
without the product's code, which would not see its own misreading; where rows live is what hudi-rs says.
Example: a writer died between two log files of the column stats, and the commit was completed all the same. A
data file without records is read by every filter, one with some of them by no filter on the others.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from tests.chaos.identities import identity
from tests.hudi_rules.table import DATA, METADATA, HudiTable
from tests.hudi_rules.timeline import Timeline
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.partitioned import (
    IndexGroup,
    hidden_groups,
    index_group,
    shard_of,
    shards_of,
)
from tests.simulation.world.checkers.pruning import merged_record, record_faults, value_types

_METADATA: Final = ".hoodie/metadata"
_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
_BUILDS: Final = "0" * 14
_LOG_MAGIC: Final = b"#HUDI#"
_FILE_INFO: Final = b"FILEINF2"
_HEADER_BYTES: Final = 33
_GZIP: Final = b"\x1f\x8b"
_PLACE: Final = ["_hoodie_partition_path", "_hoodie_record_key", "_hoodie_file_name"]
Value = tuple[bytes, str]
"""A record, and the Avro schema that it is written under."""


class IndexEntries:
    """A table in a folder that nobody writes meanwhile. `by_partition`: its record index is divided by data
    partition.
    """

    def __init__(self, table: Path, by_partition: bool = False) -> None:
        self._table, self._by_partition = table, by_partition

    def faults(self) -> Iterator[str]:
        """What is wrong with the column stats and the record index."""
        yield from self.faults_of_stats()
        yield from self.faults_of_record_index()

    def faults_of_stats(self) -> Iterator[str]:
        """Each file that readers merge has a record of each indexed column, by which no filter loses a row of
        it.
        """
        columns, types = self._stats_columns(), value_types(self._schema())
        stored: dict[tuple[str, str], dict[str, Any]] = {}
        for living in self._folded("column_stats").values():
            stored |= {(one["fileName"], one["columnName"]): one for one in living.values()}
        for folder, name in self._live_files():
            content = self._read(f"{folder}/{name}" if folder else name)
            for column in columns:
                record = stored.get((name, column))
                if record is None:
                    yield f"{folder}/{name} has no column stats of {column}"
                    continue
                values = _values(content, column)
                yield from (
                    f"{folder}/{name}: of the column stats of {column} {fault}"
                    for fault in record_faults(record, values, types)
                )

    def faults_of_record_index(self) -> Iterator[str]:
        """Each row has exactly its entry, in the file group where readers look for it, which they see."""
        folder = f"{_METADATA}/record_index"
        for file_id in sorted(hidden_groups(self._names(folder), self._counts)):
            yield f"readers see nothing of {file_id}: its first file is of an instant that does not count"
        found: dict[str, tuple[str, str]] = {}
        groups = {file_id: self._group(file_id) for file_id in self._slices("record_index")}
        shards = shards_of(groups) if self._by_partition else {"": len(groups)}
        for file_id, living in self._entries("record_index").items():
            group = groups[file_id]
            for key, value in living.items():
                if (due := shard_of(key, shards[group.path])) != group.shard:
                    yield f"{file_id} has {key}, for which readers look in the group {due}"
                    continue
                found[self._identity(group.path, key)] = decode.index_place(*value)
        wanted = self._places()
        for key in sorted(found.keys() | wanted.keys()):
            if found.get(key) != wanted.get(key):
                yield f"{key}: the record index says {found.get(key)}, and it lives in {wanted.get(key)}"

    # ------------------------------------------------------------ files

    def _names(self, folder: str) -> list[str]:
        path = self._table / folder
        return sorted(file.name for file in path.iterdir() if file.is_file()) if path.is_dir() else []

    def _read(self, path: str) -> bytes:
        return (self._table / path).read_bytes()

    @cached_property
    def _data(self) -> HudiTable:
        found = sorted(self._table.rglob(".hoodie_partition_metadata"))
        folders = [file.parent.relative_to(self._table) for file in found]
        paths = [str(each) if each.parts else "" for each in folders if each.parts[:1] != (".hoodie",)]
        return HudiTable(self._names, self._read, {path: self._names(path) for path in paths}, DATA)

    @property
    def _timeline(self) -> Timeline:
        return self._data.timeline

    def _live_files(self) -> Iterator[tuple[str, str]]:
        for (folder, _), (base, logs) in sorted(self._data.read_slices().items()):
            yield from ((folder, name) for name in [*([base] if base is not None else []), *logs])

    def _counts(self, instant: str) -> bool:
        """Whether the data table has completed it, too, or a build wrote it."""
        return instant.startswith(_BUILDS) or self._timeline.counts(instant)

    def _slices(self, partition: str) -> dict[str, list[str]]:
        """File group -> the files that readers merge. Which base files count, its own timeline says."""
        names = [
            name
            for name in self._names(f"{_METADATA}/{partition}")
            if not name.startswith(".") or self._counts(name.partition("_")[2].partition(".")[0])
        ]
        slices = HudiTable(self._names, self._read, {partition: names}, METADATA).read_slices()
        return {
            file_id: [*([base] if base is not None else []), *logs]
            for (_, file_id), (base, logs) in slices.items()
        }

    def _records(self, partition: str) -> Iterator[tuple[str, str, Value | None]]:
        """(file group, key, value) of all entries in the order of merging; None for a delete."""
        for file_id, names in self._slices(partition).items():
            for name in names:
                for key, value in _entries(self._read(f"{_METADATA}/{partition}/{name}")):
                    yield file_id, key, value

    def _entries(self, partition: str) -> dict[str, dict[str, Value]]:
        """File group -> key -> living record, where the newest counts alone."""
        found: dict[str, dict[str, Value]] = {}
        for file_id, key, value in self._records(partition):
            living = found.setdefault(file_id, {})
            if value is None:
                living.pop(key, None)
            else:
                living[key] = value
        return found

    def _folded(self, partition: str) -> dict[str, dict[str, dict[str, Any]]]:
        """The same, where all records of a key count."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for file_id, key, value in self._records(partition):
            living = found.setdefault(file_id, {})
            merged = merged_record(living.pop(key, None), None if value is None else _stats(*value))
            if merged is not None:
                living[key] = merged
        return found

    # ------------------------------------------------------------ what there has to be

    def _stats_columns(self) -> list[str]:
        definitions: dict[str, Any] = json.loads(self._read(_DEFINITIONS))["indexDefinitions"]
        columns: list[str] = definitions["column_stats"]["sourceFields"]
        return columns

    def _schema(self) -> str:
        """The newest commit's."""
        for instant in reversed(self._timeline.writes()):
            extra: Any = self._data.document(instant).get("extraMetadata") or {}
            if extra.get("schema"):
                return str(extra["schema"])
        raise ValueError(f"no commit of {self._table} has a schema")

    def _places(self) -> dict[str, tuple[str, str]]:
        """Where hudi-rs finds each row."""
        batches = HudiTableBuilder.from_base_uri(str(self._table)).build().read(HudiReadOptions())
        if not batches:
            return {}
        rows = pa.Table.from_batches([pa.record_batch(batch) for batch in batches]).select(_PLACE)
        return {
            self._identity(path, key): (path, name.removeprefix(".").partition("_")[0])
            for path, key, name in zip(*(column.to_pylist() for column in rows.columns), strict=True)
        }

    def _identity(self, path: str, key: str) -> str:
        return identity(path, key) if self._by_partition else key

    def _group(self, file_id: str) -> IndexGroup:
        group = index_group(file_id) if self._by_partition else IndexGroup("", int(file_id.split("-")[2]))
        if group is None:
            raise ValueError(f"{file_id} is no file group of a partitioned record index")
        return group


def _entries(content: bytes) -> Iterator[tuple[str, Value | None]]:
    if not content.startswith(_LOG_MAGIC):
        schema = _schema_of(content)
        yield from ((key, (value, schema)) for key, value in decode.hfile_entries(content))
        return
    for block in decode.log_blocks(content):
        if block.kind == decode.HFILE:
            for key, value in decode.hfile_entries(block.content):
                yield key, (value, block.schema) if value else None
        elif block.kind == decode.DELETE:
            yield from ((each.key, None) for each in decode.deletes(block.content))


def _schema_of(hfile: bytes) -> str:
    """The Avro schema that the file info of an HFile has."""
    at = hfile.rindex(_FILE_INFO)
    with_header = int.from_bytes(hfile[at + 29 : at + 33], "big")
    info = hfile[at + _HEADER_BYTES : at + with_header]
    info = zlib.decompress(info, 31) if info.startswith(_GZIP) else info
    text = info[info.index(b'{"') :].decode("latin-1")
    return json.dumps(json.JSONDecoder().raw_decode(text)[0])


def _stats(value: bytes, schema: str) -> dict[str, Any]:
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), decode._parsed(schema), None)
    found: dict[str, Any] = record["ColumnStatsMetadata"]
    return found


def _values(content: bytes, column: str) -> list[Any]:
    """Of all rows of a data file."""
    blocks = [content]
    if content.startswith(_LOG_MAGIC):
        blocks = [each.content for each in decode.log_blocks(content) if each.kind == decode.PARQUET]
    return [row[0] for each in blocks for row in decode.parquet_columns(each, [column])]


def check_indexes(table: Path, by_partition: bool) -> Iterator[str]:
    """G2: column stats and record index, by other rules and decoders than the product's."""
    yield from IndexEntries(table, by_partition).faults()
