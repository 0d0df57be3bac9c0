"""Tables whose timelines have been archived for long: of Hudi's form, by levels as years of archiving leave
them, with rows as real commits make them.

Their contents come from a pool of some hundred commits. Nobody reads those of old rows here, but their size
decides how many row groups a file has (one for 2 MiB of contents), and with that how large its footer is.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, ArchivedInstant
from tidemark.hudi_format.timeline.archive_files import ArchiveFile, Manifest, data_file_name
from tidemark.hudi_format.timeline.archive_rows import (
    GROUP_BYTES_MAX,
    SCHEMA,
    archive_file_writer,
    encode_archive_file,
)
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)

ROOTS: Final = (DATA_ROOT, METADATA_TABLE_ROOT)
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
LEVELS: Final = (3_000_000, 300_000, 30_000, 3_000, 300)
"""Rows of a file, the highest level first. Ten of 3 000 000 rows would be larger than a merged file gets."""
_WAITING: Final = 3
_POOL: Final = 320
_SAMPLE: Final = 6_000


class Shape(NamedTuple):
    """`files`: rows of each file of the archive, the oldest first. `active`: commits on each active timeline,
    of which archival leaves `least`. `groups`: file groups of a commit. A commit comes every `every_s`
    seconds.
    """

    files: tuple[int, ...]
    active: int = 600
    least: int = 300
    groups: int = 8
    every_s: int = 1

    def time(self, number: int, milliseconds: int = 123) -> str:
        """The instant time of the commit with this number; it completes at `milliseconds` 456."""
        return f"{_BEGIN + timedelta(seconds=number * self.every_s):%Y%m%d%H%M%S}{milliseconds:03d}"

    @property
    def archived(self) -> int:
        """How many instants the archive of each timeline has."""
        return sum(self.files)


def by_levels(archived: int) -> tuple[int, ...]:
    """Rows of the files of an archive with so many instants: of each level up to three wait for their merge.
    10 000: three files of 3 000, three of 300, one of 100.
    """
    files: list[int] = []
    left = archived
    for number, rows in enumerate(LEVELS):
        below = _WAITING * sum(LEVELS[number + 1 :])
        while left >= rows + below:
            files.append(rows)
            left -= rows
    return (*files, left) if left else tuple(files)


def make_table(table: Path, shape: Shape) -> None:
    """Both timelines with their archives, and active commits behind them."""
    history = table / DATA_ROOT / "timeline" / "history"
    history.mkdir(parents=True)
    files: list[ArchiveFile] = []
    at = 0
    for rows in shape.files:
        level = sum(rows > smaller for smaller in LEVELS[1:])
        name = data_file_name(shape.time(at), shape.time(at + rows - 1), level)
        with (history / name).open("wb") as file:
            _write_rows(file, shape, at, rows)
        files.append(ArchiveFile(name, (history / name).stat().st_size))
        at += rows
    (history / "manifest_1").write_bytes(Manifest(1, tuple(files)).encode())
    (history / "_version_").write_bytes(b"1")
    shutil.copytree(history, table / METADATA_TABLE_ROOT / "timeline" / "history", copy_function=os.link)
    for root in ROOTS:
        for number in range(shape.archived, shape.archived + shape.active):
            put_commit(table, root, shape, number)
    # The metadata table was compacted a moment ago: nothing else holds archival back.
    compacted = shape.archived + shape.active - shape.least // 2
    folder = table / METADATA_TABLE_ROOT / "timeline"
    for name in ("compaction.requested", "compaction.inflight"):
        (folder / f"{shape.time(compacted, 900)}.{name}").write_bytes(b"")
    (folder / f"{shape.time(compacted, 900)}_{shape.time(compacted, 950)}.commit").write_bytes(b"")


def _write_rows(file: BinaryIO, shape: Shape, first: int, count: int) -> None:
    """Deltacommits, and every 300th is a clean. Row groups as `archive_rows` makes them."""
    pool = pa.array(_pool(shape.groups), pa.binary())
    rows_of_a_group = -(-GROUP_BYTES_MAX * len(pool) // pool.nbytes)
    with archive_file_writer(file) as writer:
        for at in range(first, first + count, rows_of_a_group):
            numbers = np.arange(at, min(at + rows_of_a_group, first + count))
            actions = np.where(numbers % 300 == 7, "clean", "deltacommit")
            times = pa.array(np.datetime64(_BEGIN.replace(tzinfo=None), "s") + numbers * shape.every_s)
            stamps = pc.strftime(times, format="%Y%m%d%H%M%S")
            columns = [
                pc.binary_join_element_wise(stamps, "123", ""),
                pc.binary_join_element_wise(stamps, "456", ""),
                pa.array(actions),
                pool.take(pa.array(numbers % len(pool))),
                pa.nulls(len(numbers), pa.binary()),
                pa.array(np.ones(len(numbers), np.int32)),
            ]
            writer.write(pa.table(columns, schema=SCHEMA))


@cache
def _pool(groups: int) -> Sequence[bytes]:
    shape = Shape((), groups=groups)
    return [_content(shape, number) for number in range(_POOL)]


def put_commit(table: Path, root: str, shape: Shape, number: int) -> None:
    """The three files of a deltacommit."""
    folder, requested = table / root / "timeline", shape.time(number)
    (folder / f"{requested}.deltacommit.requested").write_bytes(b"")
    (folder / f"{requested}.deltacommit.inflight").write_bytes(b"")
    name = f"{requested}_{shape.time(number, 456)}.deltacommit"
    (folder / name).write_bytes(_pool(shape.groups)[number % _POOL])


def _content(shape: Shape, number: int) -> bytes:
    """What a commit says: 0.8 KB for each of its file groups."""
    requested, chance = shape.time(number), random.Random(number)
    before = shape.time(max(number - number % 40 - 40, 0))
    stats = []
    for group in range(shape.groups):
        file_id = f"{group:08x}-1c2d-4e5f-8a9b-0123456789ab-0"
        name = f".{file_id}_{requested}.log.1_{group}-0-0"
        stats.append(
            WriteStat(
                file_id=file_id,
                partition_path=f"day={group % 2}",
                path=f"day={group % 2}/{name}",
                prev_commit=before,
                num_writes=chance.randrange(500, 800),
                num_update_writes=chance.randrange(300, 500),
                num_inserts=chance.randrange(100, 200),
                total_write_bytes=(size := chance.randrange(30_000, 60_000)),
                file_size_in_bytes=size,
                base_file=f"{file_id}_{group}-0-0_{before}.parquet",
                log_files=(name,),
            )
        )
    extra = {
        "schema": '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}',
        "tidemark.epoch": str(number),
        "tidemark.through": str(number * 17 + chance.randrange(17)),
        "tidemark.generation": "3",
    }
    return encode_commit_metadata(CommitMetadata(write_stats=group_stats(stats), extra_metadata=extra))


def bytes_per_million(groups: int) -> dict[str, float]:
    """Bytes of the archive's files per million commits, no two of them with the same contents."""
    shape = Shape((), groups=groups)
    rows = [
        ArchivedInstant(
            shape.time(number), shape.time(number, 456), "deltacommit", _content(shape, number), b""
        )
        for number in range(_SAMPLE)
    ]
    small = sum(len(encode_archive_file(rows[at : at + 300])) for at in range(0, _SAMPLE, 300))
    scale = 1_000_000 / _SAMPLE
    return {
        "contents": sum(len(row.metadata) for row in rows) * scale,
        "archive, files of 300 instants": small * scale,
        "archive, merged": len(encode_archive_file(rows)) * scale,
    }
