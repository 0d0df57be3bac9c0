"""What a killed `table create` leaves, for a recording."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tidemark.commit_coordinator.opening.table_creation import CREATION, create_or_finish
from tidemark.commit_coordinator.opening.table_open import definition_of
from tidemark.config import load_config
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import FileContent
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.stream_runtime.clock import SystemClock


class _DiesBeforeProperties(LocalStorage):
    """Whoever makes a table in it dies before there is one."""

    def create(self, path: str, data: FileContent) -> None:
        if path == PROPERTIES_PATH:
            raise KeyboardInterrupt
        super().create(path, data)


def half_made(config: Path, place: Path) -> None:
    """What a `table create` leaves that is killed in the middle."""
    place.mkdir()
    file = load_config(config)
    schema = TableSchema.from_avro(file.table.schema.read_text(), file.table.name)
    storage = _DiesBeforeProperties(place)
    with contextlib.suppress(KeyboardInterrupt):
        create_or_finish(storage, definition_of(file, schema), file.table.index.shards, SystemClock())
    assert storage.exists(CREATION)
