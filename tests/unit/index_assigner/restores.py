"""What a table was at a savepoint, and a restore to it as another engine writes it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.hudi_rules.documents import encode
from tests.unit.index_assigner.index_world import DataTable


@dataclass(frozen=True)
class Saved:
    """A table as it was at a savepoint."""

    files: dict[str, bytes]
    rows: dict[str, tuple[int, int]]
    live: dict[str, int]
    has_base: set[int]


def write_restore(table: DataTable) -> None:
    """The completed restore, on the data timeline."""
    requested, completion = table.times.next(), table.times.next()
    content = encode(
        "restore",
        {
            "startRestoreTime": requested,
            "timeTakenInMillis": 1,
            "instantsToRollback": [],
            "hoodieRestoreMetadata": {},
            "version": 1,
            "restoreInstantInfo": [],
        },
    )
    for name in (f"{requested}.restore.requested", f"{requested}.restore.inflight"):
        table.storage.create(f".hoodie/timeline/{name}", b"")
    table.storage.create(f".hoodie/timeline/{requested}_{completion}.restore", content)
