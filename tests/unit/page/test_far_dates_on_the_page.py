"""The page asked for keys whose rows hold days and times that Python does not have, in tables of real files.

Dates and timestamps of any year fit their columns; Python's go from year 1 to 9999. Reading another one into
Python raises, for the page on a thread that reads the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.interop.native_commit import NativeWriter
from tests.unit.page.page_world import PageWorld
from tests.unit.page.test_page import ask
from tidemark.admin.v1 import admin_pb2
from tidemark.config.model import Address
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.page.key_story import KeyStories

US = 1_000_000
OF_2026_S = 1_767_225_600
AFTER_S = 300_000_000_000
"""In the year 11476."""
BEFORE_S = -100_000_000_000
"""In the year -1199."""
DAY_AFTER = 4_000_000
"""In the year 12921."""
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
    ]
)


def rows(key: str, at_s: int = OF_2026_S, day: int = 20_000, local_s: int = OF_2026_S) -> pa.Table:
    """One row, from whole numbers."""
    numbers = [pa.array([at_s * US], pa.int64()), pa.array([day], pa.int32())]
    columns = [*numbers, pa.array([local_s * US], pa.int64())]
    typed = [column.view(field.type) for column, field in zip(columns, list(COLUMNS)[1:], strict=True)]
    return pa.table([pa.array([key]), *typed], schema=COLUMNS)


class Table:
    """An unpartitioned table, ordered by ``at``; a commit for each row."""

    def __init__(self, path: Path, table_type: TableType) -> None:
        self.storage = LocalStorage(path)
        definition = TableDefinition(
            name="far",
            table_type=table_type,
            record_key_fields=("id",),
            partition_fields=(),
            ordering_fields=("at",),
        )
        self.writer = NativeWriter.create(path, TableSchema.from_arrow("far", COLUMNS), definition, 1)

    def found(self, keys: list[str], _: str | None) -> list[admin_pb2.LookupResponse.Found]:
        """As an assigner answers: the record index's places."""
        (only,) = self.writer.table.slices()
        return [
            admin_pb2.LookupResponse.Found(
                key=key, tier="mdt", partition_path=only.partition_path, file_id=only.file_id
            )
            for key in keys
        ]


@contextmanager
def page_of(table: Table, found: Any) -> Iterator[Address]:
    world = PageWorld()
    world.stories.close()
    world.stories = KeyStories(
        found, table.storage, table.writer.table.config, world.admin.of_instants, world.clock, 8 << 10
    )
    with world.served() as at:
        yield at


FAR = {
    "date": {"day": DAY_AFTER},
    "date-before-christ": {"day": -DAY_AFTER},
    "timestamp": {"local_s": AFTER_S},
    "timestamp-before-christ": {"local_s": BEFORE_S},
    "ordering": {"at_s": AFTER_S},
}


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_a_row_that_python_cannot_hold_is_said_and_the_others_are_shown(
    tmp_path: Path, far: dict[str, int], table_type: TableType
) -> None:
    """``base``: in a base file from the first on, ``later``: in a log file, or in a base file made anew."""
    table = Table(tmp_path / "far", table_type)
    table.writer.commit(pa.concat_tables([rows("good"), rows("base", **far), rows("later")]))
    table.writer.commit(rows("later", **{"at_s": OF_2026_S + 1, **far}))
    with page_of(table, table.found) as at:
        for key in ("base", "later"):
            status, document, _ = ask(at, f"/api/key?key={key}")
            assert status == 400, document
            assert document["error"].startswith("the key's row holds a value that cannot be shown here: ")
        status, document, _ = ask(at, "/api/key?key=good")
        assert (status, document.get("files_error")) == (200, None)
        assert dict(document["merged"])["day"] == "2024-10-04"
        assert ask(at, "/api/key?key=nobody")[0] == 200


def test_a_delete_at_a_time_that_python_does_not_have_is_said(tmp_path: Path) -> None:
    """The ordering value of a tombstone, which is in no file."""
    table = Table(tmp_path / "far", TableType.MERGE_ON_READ)
    table.writer.commit(rows("good"))
    ordering = int(np.int64(AFTER_S * US))

    def deleted(keys: list[str], _: str | None) -> list[admin_pb2.LookupResponse.Found]:
        return [
            admin_pb2.LookupResponse.Found(key=key, tier="none", has_ordering=True, ordering=ordering)
            for key in keys
        ]

    with page_of(table, deleted) as at:
        status, document, _ = ask(at, "/api/key?key=gone")
    assert status == 400, document
    assert "a value that cannot be shown here" in document["error"]
