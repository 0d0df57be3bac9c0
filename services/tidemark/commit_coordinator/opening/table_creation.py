"""Creates a new table, so that a process that is killed on the way leaves a table that the next one finishes.

1. Create `creation.json` in the table's folder: the table's definition, the kind of its record index, the
   number of shards, the columns of its column stats, the completion times of the metadata table's first
   commits. It is created exclusively, so of two processes that create the table at the same time both carry
   out the same document.
2. Make the table by that document alone: `hoodie.properties`, the metadata table, then its partitions in the
   properties. Whoever does it, and however often, makes the same files.
3. Delete the temporary files of killed processes, then the document.

Earlier versions wrote no document: one that was killed left a table without a metadata table. Such a table is
finished as well if its properties are exactly those that the configuration asks for, and it has no commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError, FileMissingError
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.bootstrap import (
    bootstrap_metadata_table,
    bootstrapped_partitions,
)
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document
from tidemark.hudi_format.storage.new_files import is_temporary
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
    """The folder is in use, or another creation was begun in it; the text says what to do."""

    kind = ErrorKind.INVALID


class Creation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document. ``completions``: completion times of the bootstrap commits of files, record_index and, if
    there are any, column stats. ``stats``: their columns. ``shards`` is not used for a partitioned index,
    which begins without any. Earlier versions wrote neither ``stats`` nor ``kind``.
    """

    definition: TableDefinition
    shards: int
    completions: list[str]
    stats: list[str] = []
    kind: IndexKind = IndexKind.GLOBAL


def is_half_made(storage: Storage, definition: TableDefinition) -> bool:
    """Whether the creation of a table was begun in this folder and has not ended."""
    if storage.exists(CREATION):
        return True
    return storage.exists(PROPERTIES_PATH) and _is_left_by_former_version(storage, definition)


def create_or_finish(
    storage: Storage,
    definition: TableDefinition,
    shards: int,
    clock: Clock,
    stats: Sequence[str] = (),
    kind: IndexKind = IndexKind.GLOBAL,
) -> None:
    """Creates an empty table with a record index of this kind and with column stats of the columns ``stats``,
    or finishes one.

    Raises CreationError for a folder in use, and for a creation that was begun with another configuration.
    """
    left = [info.path for info in storage.walk(".hoodie") if is_temporary(info.name)]
    creation = _begun(storage, clock, Creation(definition, shards, [], list(stats), kind))
    if not storage.exists(PROPERTIES_PATH):
        with contextlib.suppress(AlreadyExistsError):
            create_table(storage, creation.definition)
    if not read_properties(storage).get(keys.METADATA_PARTITIONS):
        bootstrap_metadata_table(
            storage,
            creation.shards,
            InstantGenerator(clock),
            kind=creation.kind,
            completions=creation.completions,
            stats=creation.stats,
        )
    for path in left:
        # Temporary files of a killed creation. If it is only slow, it writes its file again or gets an error.
        storage.delete(path)
    storage.delete(CREATION)
    storage.sync_dir(ROOT)


def _begun(storage: Storage, clock: Clock, wanted: Creation) -> Creation:
    """The creation that was begun here, or else ``wanted``, which lacks its times, with times of now."""
    begun = _read(storage)
    if begun is None:
        _refuse_folder_in_use(storage)
        instants = InstantGenerator(clock)
        completions = [instants.next() for _ in bootstrapped_partitions(wanted.stats)]
        mine = msgspec.structs.replace(wanted, completions=completions)
        if not storage.exists(PROPERTIES_PATH):
            # A creation of an earlier version was killed after it made this, and before it made the table.
            storage.delete_tree(_METADATA_TABLE)
        with contextlib.suppress(AlreadyExistsError):
            storage.create(CREATION, msgspec.json.encode(mine))
        begun = _read(storage)
    if begun is None:
        raise CreationError(f"{storage.base_uri}: another process is creating this table now: try again")
    if msgspec.structs.replace(begun, completions=[]) != wanted:
        raise CreationError(
            f"the creation of a table in {storage.base_uri} was begun with another configuration "
            f"({begun.kind} index, {begun.shards} shards, "
            f"key {', '.join(begun.definition.record_key_fields)}, column stats of "
            f"{', '.join(begun.stats) or 'no column'}): finish it with that one, or delete the folder, which "
            "holds no row yet"
        )
    return begun


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
