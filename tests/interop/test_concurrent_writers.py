"""Commits of ours and of Spark at the same time, Spark with the options that we ask of other writers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.judge import HudiJudge
from tests.interop.native_commit import NativeWriter, PendingCommit
from tests.interop.verdict import assert_table_holds
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
TERM_DIR = ".hoodie/.aux/tidemark/staging/term-1"
WAIT_S = 240.0
BEAT_S = 1.0


def row(key: str, region: str, ts: int) -> dict[str, Any]:
    return {"id": key, "region": region, "ts": ts, "name": f"{key}@{ts}"}


def rows_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def other_writer(table: Path) -> dict[str, str]:
    retries = {
        "hoodie.write.lock.client.num_retries": "3000",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    }
    return {**foreign_writer_options(str(table)), **retries}


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, f"waited {WAIT_S} s for {what}"
        time.sleep(0.002)


@contextmanager
def beating(table: Path, pending: PendingCommit) -> Iterator[None]:
    """Keeps the commit's heartbeat fresh, however long Spark takes: it rolls back what stopped beating."""
    storage, instant, ended = LocalStorage(table), pending.instant.requested, threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_S):
            storage.touch(heartbeat.heartbeat_path(instant), create=False)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(params=[TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ], ids=["cow", "mor"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> NativeWriter:
    definition = TableDefinition(
        name="shared",
        table_type=request.param,
        record_key_fields=("id",),
        partition_fields=("region",),
        ordering_fields=("ts",),
    )
    schema = TableSchema.from_arrow("shared", SCHEMA)
    made = NativeWriter.create(tmp_path / "shared", schema, definition, shards=2)
    made.commit(rows_of([row("a", "eu", 1), row("b", "eu", 1), row("c", "us", 1)]))
    return made


def test_spark_leaves_our_pending_commit_alone_and_both_count(
    judge: HudiJudge, writer: NativeWriter, tmp_path: Path
) -> None:
    table = tmp_path / "shared"
    pending = writer.prepare(rows_of([row("a", "eu", 2), row("n", "eu", 2)]))
    with beating(table, pending):
        judge.upsert(table, rows_of([row("c", "us", 3), row("s", "us", 3)]), other_writer(table))
    assert pending.instant.file_name in {each.name for each in (table / ".hoodie/timeline").iterdir()}
    writer.finish(pending)
    expected = [row("a", "eu", 2), row("b", "eu", 1), row("n", "eu", 2), row("c", "us", 3), row("s", "us", 3)]
    assert_table_holds(judge, table, expected)


def test_spark_gives_up_when_we_commit_to_its_file_group_first(
    judge: HudiJudge, writer: NativeWriter, tmp_path: Path
) -> None:
    table, storage = tmp_path / "shared", LocalStorage(tmp_path / "shared")
    timeline = table / ".hoodie/timeline"
    storage.make_dir(TERM_DIR)
    lock = folder_lock(storage, SystemClock(), SystemIds(), TermId(1), TERM_DIR)
    pending = writer.prepare(rows_of([row("a", "eu", 2)]))
    known = set(timeline.iterdir())
    with beating(table, pending), ThreadPoolExecutor(1) as pool:
        spark = pool.submit(judge.upsert, table, rows_of([row("a", "eu", 9)]), other_writer(table))

        def spark_has_begun() -> bool:
            return any(each.name.endswith(".inflight") for each in set(timeline.iterdir()) - known)

        wait_for("Spark's instant", spark_has_begun)
        lock.acquire(60_000)
        writer.finish(pending)
        lock.release()
        with pytest.raises(Exception, match="HoodieWriteConflictException"):
            spark.result(WAIT_S)
    assert_table_holds(judge, table, [row("a", "eu", 2), row("b", "eu", 1), row("c", "us", 1)])
    # The loser's instant is dead, not in the way: the next writer goes on.
    writer.commit(rows_of([row("b", "eu", 5)]))
    assert_table_holds(judge, table, [row("a", "eu", 2), row("b", "eu", 5), row("c", "us", 1)])
