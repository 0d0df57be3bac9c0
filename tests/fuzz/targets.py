"""Every kind of file that we read, an example of each, and the reader that production uses for it.

A target's `read` returns how many rows, entries or records it found; None where nothing counts them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from testing.memory_storage import InMemoryStorage
from tests.fuzz.avro_examples import clean_metadata, clustering_plan, replaced_files
from tests.fuzz.index_files import index_files
from tests.fuzz.own_documents import own_documents
from tests.fuzz.small_files import small_files
from tests.fuzz.target import Target
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.file_group.avro_rows import avro_row_chunks
from tidemark.hudi_format.file_group.base_file import (
    COMMIT_SEQNO,
    RECORD_KEY,
    read_base_file,
    read_base_schema,
    write_base_file,
)
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.key_versions import KeyReader
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes, read_data_log
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file import BlockType, decode_deletes, read_blocks
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.table_schema import read_commit_schema
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.avro_records import (
    decode_commit_metadata,
    decode_replace_commit_metadata,
    decode_replaced_file_ids,
)
from tidemark.hudi_format.timeline.clean_records import (
    RequestedClean,
    decode_clean_metadata,
    decode_clean_plan,
    decode_savepoint,
    encode_clean_plan,
)
from tidemark.hudi_format.timeline.instant import Action, Instant, State
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_clustering_plan,
    decode_compaction_plan,
    decode_rollback_metadata,
    decode_rollback_plan,
    encode_compaction_plan,
    encode_rollback_metadata,
    encode_rollback_plan,
)

GOLDEN: Final = Path(__file__).parent.parent / "golden"
_MODE: Final = MergeMode.EVENT_TIME_ORDERING
_INSTANT: Final = "20260101000000000"
_WRITE: Final = Instant(_INSTANT, Action.DELTA_COMMIT, State.COMPLETED, "20260101000000001")


@cache
def targets() -> tuple[Target, ...]:
    """All of them, in a fixed order."""
    small = (*small_files(golden_file), *own_documents())
    return (*_timeline(), *_archive(), *_data_files(), *index_files(golden_file), *small)


def golden_file(archive: str, path: str) -> bytes:
    """A file that Hudi on Spark wrote, by the end of its path: the first one in order of names."""
    with zipfile.ZipFile(GOLDEN / f"{archive}.zip") as found:
        names = sorted(name for name in found.namelist() if not name.endswith(".crc"))
        return found.read(next(name for name in names if name.endswith(path)))


# -- timeline


def _requested_compaction() -> RequestedCompaction:
    return RequestedCompaction(
        operations=(
            CompactionOperation(
                partition_path="p",
                file_id="f",
                base_instant=_INSTANT,
                log_files=("x",),
                base_file="y",
                metrics={"TOTAL_LOG_FILES_SIZE": 1.0},
            ),
        )
    )


def _timeline() -> list[Target]:
    folder = ".hoodie/timeline"
    plan = RollbackPlan(
        instant_to_rollback=_INSTANT,
        action="deltacommit",
        requests=(
            RollbackRequest(
                partition_path="p", file_id="f", latest_base_instant=_INSTANT, files_to_delete=("a", "b")
            ),
        ),
    )
    done = RollbackMetadata(
        start_rollback_time=_INSTANT,
        time_taken_ms=1,
        rolled_back=((_INSTANT, "deltacommit"),),
        partitions=(RollbackPartition(partition_path="p", deleted=("a", "b")),),
    )
    clean = RequestedClean(files={"p": ("/t/p/a", "/t/p/b")}, last_completed=_INSTANT)
    commit = golden_file("slices/mor_long", ".deltacommit")
    return [
        Target("commit", f"{folder}/c.deltacommit", commit, _read(_commit), False),
        Target("commit read as replacecommit", f"{folder}/r.replacecommit", commit, _read(_replace), False),
        Target("rollback plan", f"{folder}/r.requested", encode_rollback_plan(plan), _read(_plan), False),
        Target("rollback", f"{folder}/r.rollback", encode_rollback_metadata(done), _read(_rollback), False),
        Target(
            "compaction plan",
            f"{folder}/c.requested",
            golden_file("record_index/mor_global", ".compaction.requested"),
            _read(_compaction),
            False,
        ),
        Target(
            "our compaction plan",
            f"{folder}/o.requested",
            encode_compaction_plan(_requested_compaction()),
            _read(_compaction),
            False,
        ),
        Target("clean", f"{folder}/c.clean", clean_metadata(), _read(_clean), False),
        Target(
            "clean plan", f"{folder}/c.clean.requested", encode_clean_plan(clean), _read(_clean_plan), False
        ),
        Target(
            "savepoint",
            f"{folder}/s.savepoint",
            golden_file("operations/restored", ".savepoint"),
            _read(_savepoint),
            False,
        ),
        *_replacing(folder, commit),
    ]


def _replacing(folder: str, commit: bytes) -> list[Target]:
    return [
        Target(
            "clustering plan",
            f"{folder}/{_INSTANT}.clustering.requested",
            clustering_plan(),
            _read(_clustering),
            False,
        ),
        Target(
            "replaced file ids",
            f"{folder}/r.replacecommit",
            replaced_files(),
            _read(_replaced),
            False,
        ),
        Target(
            "schema of a commit",
            instant_path(_WRITE),
            commit,
            lambda storage, _: _schema_of(storage),
            False,
        ),
    ]


def _schema_of(storage: InMemoryStorage) -> int:
    found = read_commit_schema(storage, "t", _WRITE)
    return 0 if found is None else 1


def _read(decode: Callable[[bytes, str], int]) -> Callable[[InMemoryStorage, str], int]:
    return lambda storage, path: decode(storage.read(path), path)


def _commit(data: bytes, path: str) -> int:
    return len(decode_commit_metadata(data, path).stats())


def _replace(data: bytes, path: str) -> int:
    return len(decode_replace_commit_metadata(data, path).replaced_file_ids)


def _clustering(data: bytes, path: str) -> int:
    return len(decode_clustering_plan(data, path))


def _replaced(data: bytes, path: str) -> int:
    return len(decode_replaced_file_ids(data, path))


def _plan(data: bytes, path: str) -> int:
    return len(decode_rollback_plan(data, path).requests)


def _rollback(data: bytes, path: str) -> int:
    return len(decode_rollback_metadata(data, path).partitions)


def _compaction(data: bytes, path: str) -> int:
    return len(decode_compaction_plan(data, path).operations)


def _clean_plan(data: bytes, path: str) -> int:
    return sum(len(names) for names in decode_clean_plan(data, path).files.values())


def _savepoint(data: bytes, path: str) -> int:
    return sum(len(names) for names in decode_savepoint(data, path).values())


def _clean(data: bytes, path: str) -> int:
    return len(decode_clean_metadata(data, path).deleted)


# -- archive


def _archive() -> list[Target]:
    folder = ".hoodie/timeline/history"
    return [
        Target("archive version", f"{folder}/_version_", b"1", _archived, False),
        Target("archive manifest", f"{folder}/manifest_1", _MANIFEST, _archived, False),
        # Which values are null has no checksum in Parquet.
        Target("archive file", f"{folder}/a_b_0.parquet", _archive_file(), _archived, False),
    ]


_MANIFEST: Final = json.dumps({"files": [{"fileName": "a_b_0.parquet", "fileLen": 1}]}).encode()


def _archive_file() -> bytes:
    texts, blobs = pa.string(), pa.binary()
    rows = pa.table(
        {
            "instantTime": pa.array([f"2026010100000000{n}" for n in range(5)], texts),
            "completionTime": pa.array([f"2026010100000001{n}" for n in range(5)], texts),
            "action": pa.array(["deltacommit"] * 5, texts),
            "metadata": pa.array([b"m" * 40] * 5, blobs),
            "plan": pa.array([None] * 5, blobs),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue().to_pybytes())


def _archived(storage: InMemoryStorage, path: str) -> int:
    for name, content in (("_version_", b"1"), ("manifest_1", _MANIFEST), ("a_b_0.parquet", _archive_file())):
        other = f".hoodie/timeline/history/{name}"
        if other != path:
            storage.create(other, content)
    timeline = ArchivedTimeline(storage)
    timeline.completion_times()
    return len(timeline.instants())


# -- data files


def _rows(count: int) -> pa.Table:
    keys = pa.array([f"key-{n}" for n in range(count)])
    meta = dict.fromkeys(_SCHEMA.arrow_with_meta.names[:5], keys)
    user = {"id": keys, "ts": pa.array(np.arange(count)), "name": pa.array([f"n{n}" for n in range(count)])}
    return pa.table({**meta, **user}, schema=_SCHEMA.arrow_with_meta)


_SCHEMA: Final = TableSchema.from_arrow(
    "t", pa.schema([("id", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
)
_ORDERING: Final = OrderingField.of(_SCHEMA, "ts")


def _data_files() -> list[Target]:
    ours = data_log_bytes(
        _SCHEMA,
        _INSTANT,
        _rows(6),
        Deletes.with_ordering(pa.array(["d1", "d2"]), np.array([3, 4])),
        "p",
        _ORDERING,
    )
    spark = golden_file("slices/mor_long", ".log.1_0-43-31")
    base = write_base_file(_rows(50), _SCHEMA)
    log = f"p/.f_{_INSTANT}.log.1_0-0-0"
    return [
        Target("base file", "p/f_0-0-0_20260101000000000.parquet", base, _base),
        Target(
            "base file of Spark", "p/s_0-0-0_1.parquet", golden_file("slices/mor_long", ".parquet"), _base
        ),
        Target(
            "schema of a base file",
            "p/f_0-0-0_20260101000000000.parquet",
            base,
            lambda storage, path: len(read_base_schema(storage, path)),
            False,
        ),
        Target("a key's row in a base file", "p/f_0-0-0_20260101000000000.parquet", base, _base_row, False),
        # Values inside a Parquet block have no checksum, block framing and counts have.
        Target("our data and delete log", log, ours, _served(len(ours), _log)),
        Target("Avro data and delete log of Spark", log, spark, _served(len(spark), _blocks)),
    ]


def _base(storage: InMemoryStorage, path: str) -> int:
    return int(read_base_file(storage, path).num_rows)


def _base_row(storage: InMemoryStorage, path: str) -> None:
    name = path.rpartition("/")[2]
    reader = KeyReader(storage, _SCHEMA, _MODE, _ORDERING, 1 << 20)
    reader.base_row(FileSlice("p", "f", name, _INSTANT), "key-7")


def _served(size: int, read: Callable[[InMemoryStorage, str], int]) -> Callable[[InMemoryStorage, str], int]:
    """Reads a log file that was committed with `size` bytes, as a table that is served: looked at before."""

    def found(storage: InMemoryStorage, path: str) -> int:
        partition, _, name = path.rpartition("/")
        file_slice = FileSlice(partition, "f", None, _INSTANT, (name,))
        ReadableLogs(storage, "ts").check([file_slice], lambda _: {name: size})
        return read(storage, path)

    return found


def _log(storage: InMemoryStorage, path: str) -> int:
    columns = pa.schema([_SCHEMA.arrow_with_meta.field(name) for name in (RECORD_KEY, COMMIT_SEQNO, "ts")])
    content = read_data_log(storage, path, columns, _MODE, _ORDERING)
    return len(content.changes)


def _blocks(storage: InMemoryStorage, path: str) -> int:
    found = 0
    for block in read_blocks(storage.read(path), path):
        if block.block_type is BlockType.DELETE:
            found += len(decode_deletes(block.content, path))
        elif block.block_type is BlockType.AVRO_DATA:
            found += sum(rows.num_rows for rows in avro_row_chunks(block.content, block.schema, path))
    return found
