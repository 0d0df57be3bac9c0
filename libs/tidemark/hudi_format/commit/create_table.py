"""Making an empty table: folders, properties, an empty timeline. Its metadata table is made by
`metadata_table`.
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
    """Makes the table at the storage's base, which may hold no Hudi table yet.

    The properties come last and are made exclusively: until then there is no table, and of two that race
    one gets `AlreadyExistsError`. Raises `UnsupportedTableError` for a definition that Hudi could not work
    with.
    """
    properties = new_table_properties(definition)
    if storage.exists(PROPERTIES_PATH):
        raise AlreadyExistsError(f"{storage.base_uri} holds a Hudi table already: adopt it instead")
    for folder in _FOLDERS:
        storage.make_dir(folder)
    storage.create(PROPERTIES_PATH, format_properties(properties, "Made by Tidemark").encode("ascii"))
    return read_table_config(storage)
