"""The table's lock, shared with Hudi's FileSystemBasedLockProvider and with Hudi's writers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.judge import HudiJudge
from tests.interop.test_timeline_with_hudi import rows
from tidemark.hudi_format.commit.foreign_writers import LOCK_PROVIDER, foreign_writer_options
from tidemark.hudi_format.publication.folder_lock import folder_lock
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, TableLock
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.storage import LocalStorage
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "locked"


def our_lock(table: Path) -> TableLock:
    storage = LocalStorage(table)
    term_dir = ".hoodie/.aux/tidemark/staging/term-7"
    storage.make_dir(term_dir)
    return folder_lock(storage, SystemClock(), SystemIds(), TermId(7), term_dir)


def hudis_lock(judge: HudiJudge, table: Path, **changed: str) -> Any:
    """Hudi's own lock provider, with the options that we tell other writers to use."""
    jvm = judge.spark._jvm
    properties = jvm.org.apache.hudi.common.config.TypedProperties()
    properties.setProperty("hoodie.base.path", str(table))
    for key, value in {**foreign_writer_options(str(table)), **changed}.items():
        properties.setProperty(key, value)
    configuration = jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(
        judge.spark.sparkContext._jsc.hadoopConfiguration()
    )
    provider = jvm.org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider
    assert LOCK_PROVIDER == "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    return provider(jvm.org.apache.hudi.common.config.LockConfiguration(properties), configuration)


def try_lock(judge: HudiJudge, provider: Any) -> bool:
    return bool(provider.tryLock(100, judge.spark._jvm.java.util.concurrent.TimeUnit.MILLISECONDS))


def closed(provider: Any) -> None:
    """Closes it as Hudi's clients do, who only log that the lock could not be deleted."""
    with contextlib.suppress(Py4JJavaError):
        provider.close()


def test_each_side_waits_for_the_other(judge: HudiJudge, table: Path) -> None:
    lock = our_lock(table)
    theirs = hudis_lock(judge, table)
    assert theirs.getLock() == str(table / LOCK_PATH)
    assert lock.try_acquire()
    assert not try_lock(judge, theirs)
    lock.check()
    lock.release()
    assert try_lock(judge, theirs)
    assert not lock.try_acquire()
    holder = read_lock(LocalStorage(table))
    assert holder is not None
    assert holder.is_foreign
    assert (table / LOCK_PATH).read_bytes() == b""
    theirs.unlock()
    assert lock.try_acquire()
    lock.release()
    assert try_lock(judge, theirs)
    theirs.unlock()


def test_a_hudi_client_that_closes_does_not_free_our_lock(judge: HudiJudge, table: Path) -> None:
    lock = our_lock(table)
    theirs = hudis_lock(judge, table)
    assert lock.try_acquire()
    assert not try_lock(judge, theirs)
    closed(theirs)
    lock.check()
    assert not try_lock(judge, hudis_lock(judge, table))
    lock.release()
    again = hudis_lock(judge, table)
    assert try_lock(judge, again)
    again.unlock()


def test_a_hudi_client_that_unlocked_before_frees_nothing_of_ours_when_it_closes(
    judge: HudiJudge, table: Path
) -> None:
    """Hudi deletes twice: when it unlocks, and when it closes, which may be after we took the lock."""
    lock = our_lock(table)
    theirs = hudis_lock(judge, table)
    assert try_lock(judge, theirs)
    theirs.unlock()
    assert lock.try_acquire()
    closed(theirs)
    lock.check()
    lock.release()
    assert read_lock(LocalStorage(table)) is None


def test_a_hudi_client_with_an_expiry_can_not_take_our_old_lock(judge: HudiJudge, table: Path) -> None:
    lock = our_lock(table)
    assert lock.try_acquire()
    long_ago = time.time() - 600
    for path in (table / LOCK_PATH / "owner", table / LOCK_PATH):
        os.utime(path, (long_ago, long_ago))
    theirs = hudis_lock(judge, table, **{"hoodie.write.lock.filesystem.expire": "1"})
    with contextlib.suppress(Py4JJavaError):
        assert not try_lock(judge, theirs)
    lock.check()
    closed(theirs)
    lock.check()
    lock.release()


def test_a_spark_write_waits_while_we_hold_the_lock_and_goes_on_after(judge: HudiJudge, table: Path) -> None:
    judge.create_table_with_spark(table, rows(0, 10, 0), table_type="MERGE_ON_READ")
    options = {
        **foreign_writer_options(str(table)),
        "hoodie.write.lock.client.num_retries": "2",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
    }
    lock = our_lock(table)
    assert lock.try_acquire()
    with pytest.raises(Exception, match=r"(?i)lock"):
        judge.upsert(table, rows(5, 10, 1), options)
    # It closed its client, and that deleted a lock *file* of ours.
    lock.check()
    assert len(judge.snapshot(table)) == 10
    lock.release()
    judge.upsert(table, rows(5, 10, 1), options)
    assert len(judge.snapshot(table)) == 15
    assert read_lock(LocalStorage(table)) is None


def test_spark_and_we_take_turns_and_never_lose_the_lock_to_each_other(judge: HudiJudge, table: Path) -> None:
    judge.create_table_with_spark(table, rows(0, 10, 0), table_type="MERGE_ON_READ")
    options = {
        **foreign_writer_options(str(table)),
        "hoodie.write.lock.client.num_retries": "6000",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
    }
    lock, lock_of, clock = our_lock(table), LocalStorage(table), SystemClock()
    failures: list[BaseException] = []

    def write_with_spark() -> None:
        try:
            judge.upsert(table, rows(5, 10, 1), options)
        except BaseException as error:
            failures.append(error)

    spark = threading.Thread(target=write_with_spark)
    spark.start()
    held = waited = 0
    while spark.is_alive():
        # Spark asks every 50 ms, so that is how long it is left to it at least; looked at all the while.
        for _ in range(20):
            found = read_lock(lock_of)
            waited += found is not None and found.is_foreign
            clock.sleep_ms(5)
        if lock.try_acquire():
            clock.sleep_ms(100)
            lock.check()
            lock.release()
            held += 1
    spark.join()
    assert failures == []
    assert held > 3
    assert waited > 0
    assert len(judge.snapshot(table)) == 15
    assert read_lock(LocalStorage(table)) is None
