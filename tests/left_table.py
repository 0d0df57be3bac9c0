"""A table that nobody served for many commits: two partitions, one with blocks as Hudi on Spark writes them
(Avro), which merges hold with their rows, one with ours (Parquet), which they read twice. The log files have
several times the memory that a merge may take, and no codec makes the rows smaller.

TIDEMARK_LEFT_COMMITS says how many commits (`make left-table`: 20 000).
"""

from __future__ import annotations

import io
import json
import logging
import os
import random
import struct
import time
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tests.interop import native_commit
from tests.interop.native_commit import NativeWriter, shard_logs
from tests.interop.native_plan import CommitPlan, locate
from tests.unit.commit_coordinator.table_services.story import ORDERING, SCHEMA, Story
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import delete_markers
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.log_file import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit, complete_delta_commit
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    encode_commit_metadata,
    group_stats,
)

COMMITS: Final = int(os.environ.get("TIDEMARK_LEFT_COMMITS", "120"))
KEYS: Final = 500
ROWS: Final = 60
"""Of each commit: about 30 in each partition."""
TASK_MEMORY: Final = 32 << 20
# An interpreter with Arrow takes 80 MiB before it merges anything.
PEAK_MAX: Final = (96 << 20) + 2 * TASK_MEMORY
"""Of a process that merges, in bytes."""
NOISE: Final = max((4 * TASK_MEMORY) // (COMMITS * ROWS), 16)
"""Bytes of each row that no codec makes smaller: in all commits four times the memory of a merge."""
AVRO: Final = "us"
"""The partition with blocks as Spark writes them."""
_TOLD_EVERY: Final = 1_000
_log = logging.getLogger(__name__)


class LeftStory(Story):
    """Whose rows hardly get smaller. ``noise``: bytes of each row that is written from now on."""

    noise = NOISE

    def named(self, n: int) -> str:
        noise = random.Random(f"{n} {self.commits}").randbytes(self.noise)
        return f"{super().named(n)} {b64encode(noise).decode()}"


@cache
def parsed(avro: str) -> Any:
    return fastavro.parse_schema(json.loads(avro))


def log_bytes(
    schema: TableSchema,
    instant: str,
    rows: pa.Table,
    deletes: Deletes,
    partition_path: str,
    ordering: OrderingField | None,
) -> bytes:
    """As `data_log_bytes`; with an Avro block where Spark would write one."""
    if partition_path != AVRO or not rows.num_rows:
        return data_log_bytes(schema, instant, rows, deletes, partition_path, ordering)
    content = io.BytesIO()
    content.write(struct.pack(">ii", 3, rows.num_rows))
    for row in rows.to_pylist():
        record = io.BytesIO()
        fastavro.schemaless_writer(record, parsed(schema.avro_with_meta_json), row)
        content.write(struct.pack(">i", record.tell()) + record.getvalue())
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema.avro_with_meta_json}
    block = frame_block(BlockType.AVRO_DATA, headers, content.getvalue())
    if not len(deletes):
        return block
    return block + data_log_bytes(schema, instant, None, deletes, partition_path, ordering)


class QuickWriter(NativeWriter):
    """Commits that know where keys are, so that the thousandth costs as much as the first."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.path, SCHEMA, story.clock)
        snapshot = MetadataTableSnapshot.load(self._storage)
        self._known = locate(snapshot, list(story.live))
        self._slices = {
            RecordLocation(each.partition_path, each.file_id): each for each in self.table.slices()
        }
        self._homes = {each.partition_path: each for each in sorted(self._slices, reverse=True)}
        self._instants.observe(snapshot.data_timeline.times() + snapshot.metadata_timeline.times())

    def commit(self, upserts: pa.Table, deletes: Sequence[tuple[str, int | None]] = ()) -> str:
        by, instant = Unfenced(self._storage), self._instants.next()
        requested = create_requested(by, instant, Action.DELTA_COMMIT)
        data = create_inflight(by, requested, encode_commit_metadata(CommitMetadata()))
        plan = CommitPlan(upserts, upserts.column("id").combine_chunks(), ORDERING, self._slices)
        keys, paths = (column.to_pylist() for column in upserts.columns[:2])
        for row, (key, path) in enumerate(zip(keys, paths, strict=True)):
            target = self._known.get(key) or self._homes[path]
            plan.group(target).rows.append(row)
            if key not in self._known:
                plan.index[key] = self._known[key] = target
        for key, value in deletes:
            plan.group(self._known.pop(key)).deletes.append((key, value or 0))
            plan.index[key] = None
        stats = [self._write_group(instant, plan, location) for location in plan.groups]
        index = self._write_index(instant, shard_logs(instant, plan, 2), stats)
        complete_delta_commit(by, begin_delta_commit(by, instant), self._instants.next(), index)
        metadata = CommitMetadata(
            write_stats=group_stats(stats), extra_metadata={SCHEMA_KEY: SCHEMA.avro_json}
        )
        complete(by, data, self._instants.next(), encode_commit_metadata(metadata))
        delete_markers(self._storage, instant)
        return instant


def left(path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock | None = None) -> LeftStory:
    """A table of so many commits. Keys come, change, go and come back, so that the index changes, too. Behind
    it the test's process writes Avro blocks, and waits for no disk.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(native_commit, "data_log_bytes", log_bytes)
    story = LeftStory(path, clock=clock)
    story.commit(range(ROWS))
    story.writer = QuickWriter(story)
    began_s = time.monotonic()
    for number in range(COMMITS):
        if number % _TOLD_EVERY == 0:
            _log.info("%d of %d commits after %.0f s", number, COMMITS, time.monotonic() - began_s)
        first = 7 * number
        gone = (first + KEYS // 2) % KEYS
        deletes = (gone,) if f"k{gone}" in story.live else ()
        story.commit([(first + n) % KEYS for n in range(ROWS)], deletes=deletes)
    return story
