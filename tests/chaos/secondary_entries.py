"""The secondary index of a table as anybody finds it, entry by entry, and whether it is that of the rows.

Files are listed, put into slices and decoded here and by `tests/hudi_rules` and the simulation's decoders,
without the product's code. An entry is a key alone: the value's text, a dollar, the record key, with a
backslash before backslashes, dollars and NULs in both; null is a NUL without a backslash. All entries of a
value lie in the file group of Java's hash of what stands before the record key. Example: the row k1 with the
name `a$b` has the entry `a\\$b$k1`, in the group of the hash of `a\\$b$`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.hudi_rules import value_entries
from tests.hudi_rules.table import DATA, METADATA, HudiTable
from tests.hudi_rules.timeline import Timeline
from tests.input_model import Row
from tests.simulation.world.checkers import decode

_FOLDER: Final = ".hoodie/metadata"
_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
_PROPERTIES: Final = ".hoodie/hoodie.properties"
_LISTED: Final = "hoodie.table.metadata.partitions"
_PREFIX: Final = "secondary_index_"
_BUILDS: Final = "0" * 14
_LOG_MAGIC: Final = b"#HUDI#"
# Five meta columns and the key are null or empty, type 7, four other kinds of content null, not deleted.
_ENTRY: Final = bytes.fromhex("0000000000000e000000000200")


class KeptIndex(NamedTuple):
    """`name`: of the folder in the metadata table. `is_listed`: False while it is half made."""

    name: str
    column: str
    is_listed: bool


class Entry(NamedTuple):
    """A living entry: its key, and the number of the file group that it lies in."""

    key: str
    group: int


def kept_index(table: Path) -> KeptIndex | None:
    """The one that is defined; None where none is. Of several the first by name."""
    definitions = table / _DEFINITIONS
    text = definitions.read_text() if definitions.is_file() else ""
    known = json.loads(text)["indexDefinitions"] if text else {}
    listed = _listed(table)
    for name in sorted(each for each in known if each.startswith(_PREFIX)):
        return KeptIndex(name, known[name]["sourceFields"][0], name in listed)
    return None


def check_entries(table: Path, rows: Mapping[str, Row]) -> Iterator[str]:
    """Each row has exactly its entry, in the file group where readers look for it, and no entry is without a
    row. `rows`: those of the table, by key.
    """
    index = kept_index(table)
    if index is None or not index.is_listed:
        yield f"the table has no secondary index that is listed: {index}"
        return
    groups, found = read_entries(table, index.name)
    wanted = {_key(row[index.column], key): key for key, row in rows.items()}
    seen: set[str] = set()
    for entry in found:
        if entry.key in seen:
            yield f"{index.name}: the entry {entry.key!r} is there twice"
        seen.add(entry.key)
        due = group_of(entry.key, groups)
        if entry.group != due:
            yield f"{index.name}: the entry {entry.key!r} is in the file group {entry.group}, not in {due}"
    for key in sorted(wanted.keys() - seen):
        yield f"{index.name}: {wanted[key]} has no entry {key!r}: queries by {index.column} lose the row"
    yield from (f"{index.name}: the entry {key!r} has no row" for key in sorted(seen - wanted.keys()))


def read_entries(table: Path, index: str) -> tuple[int, list[Entry]]:
    """How many file groups the index has, and its living entries. Raises ValueError for one whose content is
    not that of an entry.
    """

    def names(folder: str) -> list[str]:
        path = table / folder
        return sorted(file.name for file in path.iterdir() if file.is_file()) if path.is_dir() else []

    def read(path: str) -> bytes:
        return (table / path).read_bytes()

    data = HudiTable(names, read, {}, DATA).timeline
    folder = f"{_FOLDER}/{index}"
    counted = [name for name in names(folder) if _counts(name, data)]
    slices = HudiTable(names, read, {index: counted}, METADATA).read_slices()
    found = []
    for (_, file_id), (base, logs) in slices.items():
        living: set[str] = set()
        for name in [*([base] if base is not None else []), *logs]:
            for key, is_living in _records(f"{folder}/{name}", read(f"{folder}/{name}")):
                (living.add if is_living else living.discard)(key)
        found += [Entry(key, _number(file_id)) for key in sorted(living)]
    return len(slices), found


def group_of(key: str, groups: int) -> int:
    """In which of so many file groups an entry belongs: Java's hash of what stands before the record key."""
    return value_entries.group_of(value_entries.value_part_of(key), groups)


def _counts(name: str, data: Timeline) -> bool:
    """A log file counts when the data table has completed its instant, too, or when a build wrote it. Whether
    a base file does the metadata table's own timeline says.
    """
    if not name.startswith("."):
        return True
    instant = name.partition("_")[2].partition(".")[0]
    return instant.startswith(_BUILDS) or data.counts(instant)


def _records(path: str, content: bytes) -> Iterator[tuple[str, bool]]:
    """The keys of a file in its order, and whether each is put or deleted."""
    if not content.startswith(_LOG_MAGIC):
        yield from _puts(path, content)
        return
    for block in decode.log_blocks(content):
        if block.kind == decode.HFILE:
            yield from _puts(path, block.content)
        elif block.kind == decode.DELETE:
            yield from ((each.key, False) for each in decode.deletes(block.content))
        else:
            raise ValueError(f"{path}: a block of type {block.kind}")


def _puts(path: str, content: bytes) -> Iterator[tuple[str, bool]]:
    for key, value in decode.hfile_entries(content):
        if value != _ENTRY:
            raise ValueError(f"{path}: the content of {key!r} is {value.hex()}, not that of an entry")
        yield key, True


def _key(value: object, record_key: str) -> str:
    return f"{value_entries.value_part(value)}{value_entries.escaped(record_key)}"


def _number(file_id: str) -> int:
    """Of `secondary-index-<name>-0003-0`: 3."""
    return int(file_id.rsplit("-", 2)[1])


def _listed(table: Path) -> frozenset[str]:
    lines = (table / _PROPERTIES).read_text("latin-1").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return frozenset(values.get(_LISTED, "").split(","))
