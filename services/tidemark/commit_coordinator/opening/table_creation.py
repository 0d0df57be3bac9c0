"""Makes a new table, whatever kills it: what is made is written down first, and who finds it finishes it.

1. `creation.json` in the table's folder: the table's definition, the number of shards, the completion times
   of the metadata table's two first commits. Made exclusively: of two that create, both carry out one.
2. The table and its metadata table by that document alone, so whoever does it, and however often, makes the
   same files: `hoodie.properties`, then the metadata table, then its name in the properties.
3. The document goes, after what killed processes left half written.

Versions that wrote no document left a table without metadata table when they were killed: it is finished as
well when it is, to the letter, the one that the configuration asks for, and nobody has written to it.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError, FileMissingError
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document
from tidemark.hudi_format.storage.local import is_temporary
from tidemark.hudi_format.table_config import (
    PROPERTIES_PATH,
    TableDefinition,
    new_table_properties,
    read_properties,
)
from tidemark.hudi_format.timeline import load_timeline
from tidemark.stream_runtime.clock import Clock

CREATION: Final = join_path(ROOT, "creation.json")
_METADATA_TABLE: Final = ".hoodie/metadata"


class CreationError(CoordinatorError):
    """The folder holds what is no table of ours; the text says what and what to do."""

    kind = ErrorKind.INVALID


class Creation(msgspec.Struct, frozen=True):
    """The document. ``completions``: completion times of the bootstrap commits of `files`, `record_index`."""

    definition: TableDefinition
    shards: int
    completions: list[str]


def is_half_made(storage: Storage, definition: TableDefinition) -> bool:
    """Whether a creation was begun here and not ended."""
    if storage.exists(CREATION):
        return True
    return storage.exists(PROPERTIES_PATH) and _is_left_by_former_version(storage, definition)


def create_or_finish(storage: Storage, definition: TableDefinition, shards: int, clock: Clock) -> None:
    """An empty table with its record index. Raises CreationError for a folder in use."""
    left = [info.path for info in storage.walk(".hoodie") if is_temporary(info.name)]
    creation = _begun(storage, definition, shards, clock)
    if not storage.exists(PROPERTIES_PATH):
        with contextlib.suppress(AlreadyExistsError):
            create_table(storage, creation.definition)
    if not read_properties(storage).get(keys.METADATA_PARTITIONS):
        bootstrap_metadata_table(
            storage, creation.shards, InstantGenerator(clock), completions=creation.completions
        )
    for path in left:
        # Of a creation that was killed. One that is slow writes its file anew, or is told that it is gone.
        storage.delete(path)
    storage.delete(CREATION)
    storage.sync_dir(ROOT)


def _begun(storage: Storage, definition: TableDefinition, shards: int, clock: Clock) -> Creation:
    found = _read(storage)
    if found is None:
        _refuse_folder_in_use(storage)
        instants = InstantGenerator(clock)
        completions = [instants.next(), instants.next()]
        mine = Creation(definition, shards, completions)
        if not storage.exists(PROPERTIES_PATH):
            # Left by a creation of a former version, which was killed before there was a table.
            storage.delete_tree(_METADATA_TABLE)
        with contextlib.suppress(AlreadyExistsError):
            storage.create(CREATION, msgspec.json.encode(mine))
        found = _read(storage)
    if found is None:
        raise CreationError(f"{storage.base_uri}: another process makes this table just now: try again")
    if (found.definition, found.shards) != (definition, shards):
        raise CreationError(
            f"the making of a table in {storage.base_uri} was begun with another configuration "
            f"({found.shards} shards, key {', '.join(found.definition.record_key_fields)}): finish it with "
            "that one, or delete the folder, which holds no row yet"
        )
    return found


def _read(storage: Storage) -> Creation | None:
    try:
        return read_document(storage, CREATION, Creation)
    except FileMissingError:
        return None
    except CorruptFileError as error:
        raise CreationError(
            f"{error}, or another version of Tidemark made it: "
            "finish with that one, or delete the folder, which holds no row yet"
        ) from error


def _refuse_folder_in_use(storage: Storage) -> None:
    used = [info.name for info in storage.list("") if info.name != ".hoodie"]
    if used:
        raise CreationError(
            f"table.path {storage.base_uri} is no Hudi table, and not empty (it holds {used[0]!r}): choose "
            "another path, or empty it"
        )


def _is_left_by_former_version(storage: Storage, definition: TableDefinition) -> bool:
    return (
        read_properties(storage) == new_table_properties(definition)
        and not load_timeline(storage).instants
        and all(info.name == ".hoodie" for info in storage.list(""))
    )
