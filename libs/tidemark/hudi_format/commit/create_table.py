"""Creates an empty table: folders, properties, an empty timeline. The package `metadata_table` creates its
metadata table.
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.properties import format_properties
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import (
    PROPERTIES_PATH,
    TableConfig,
    TableDefinition,
    new_table_properties,
    read_table_config,
)

_FOLDERS: Final = (".hoodie/timeline/history", ".hoodie/.aux", ".hoodie/.temp", ".hoodie/.heartbeat")


def create_table(storage: Storage, definition: TableDefinition) -> TableConfig:
    """Creates the table in the storage's base folder and returns its configuration.

    The folders are created first and `hoodie.properties` last, by a create that never replaces a file: until
    then there is no table, and of two processes that create it at the same time one succeeds.

    Raises `AlreadyExistsError` when the folder holds a Hudi table already, `UnsupportedTableError` for a
    definition that Hudi could not work with.
    """
    properties = new_table_properties(definition)
    if storage.exists(PROPERTIES_PATH):
        raise AlreadyExistsError(f"{storage.base_uri} holds a Hudi table already: adopt it instead")
    for folder in _FOLDERS:
        storage.make_dir(folder)
    storage.create(PROPERTIES_PATH, format_properties(properties, "Made by Tidemark").encode("ascii"))
    return read_table_config(storage)
