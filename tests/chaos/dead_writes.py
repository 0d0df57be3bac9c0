"""What a writer of another engine leaves that died in the middle of its write, long ago: made here, without
the product's code.

A pending instant, its last sign of life, the marker of a data file, and half of that file. All of them are as
old as files can be, so no clock of a campaign makes the writer look alive.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

# Requested and inflight: Hudi leaves the word `commit` out of the second.
_STATES: Final = {
    "merge_on_read": ("deltacommit.requested", "deltacommit.inflight"),
    "copy_on_write": ("commit.requested", "inflight"),
}
_TIMELINE: Final = ".hoodie/timeline"
_FILE_GROUP: Final = UUID(int=0)
_LONG_AGO: Final = (0, 0)


def leave_dead_write(table: Path, table_type: str) -> str:
    """Its instant. Raises ValueError while the table has no data partition."""
    instant, (requested, inflight) = _now(), _STATES[table_type]
    partition = min(
        file.parent for file in table.rglob(".hoodie_partition_metadata") if _is_of_data(file, table)
    )
    half = f"{partition.relative_to(table)}/{_FILE_GROUP}-0_0-0-0_{instant}.parquet"
    # The instant comes last: what is rolled back with it is there by then.
    _make(table / f".hoodie/.heartbeat/{instant}")
    _make(table / f".hoodie/.temp/{instant}/{half}.marker.CREATE")
    _make(table / half, b"half a file")
    _make(table / f"{_TIMELINE}/{instant}.{inflight}")
    _make(table / f"{_TIMELINE}/{instant}.{requested}")
    return instant


def is_pending(table: Path, instant: str) -> bool:
    """Whether anything of the instant is still on the timeline."""
    return any((table / _TIMELINE).glob(f"{instant}.*"))


def _make(file: Path, content: bytes = b"") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, _LONG_AGO)


def _now() -> str:
    """By the machine's clock, in UTC as the table says it."""
    return f"{datetime.now(UTC):%Y%m%d%H%M%S%f}"[:17]


def _is_of_data(file: Path, table: Path) -> bool:
    return file.relative_to(table).parts[0] != ".hoodie"
