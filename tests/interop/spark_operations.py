"""What Hudi on Spark does to a table besides upserts: table services, replaced partitions, taking back.

Every call names the record index: Hudi drops an index that the options of a procedure or a write do not name.
A procedure takes them by `options` where it has that argument, else by the session's settings.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.interop.hudi_options import (
    GLOBAL_RECORD_INDEX,
    SMALL_FILTERS,
    SMALL_PARALLELISM,
    own_options,
)
from tests.interop.judge import HudiJudge, Rows

SMALL_FILES: Final = {"hoodie.parquet.small.file.limit": "104857600"}
"""Inserts go into the file groups that are there."""
COMPACTS_INDEX: Final = {"hoodie.metadata.compact.max.delta.commits": "1"}
"""The write compacts the metadata table first."""
_SERIAL: Final = itertools.count()
_WAIT_S: Final = 600.0
_PAUSES: Final = "pauses"
# Hudi cannot roll back what its metadata table's compaction has passed, and the procedure begins with one.
_NO_METADATA_COMPACTION: Final = {"hoodie.metadata.compact.max.delta.commits": "1000000"}


class SparkOperations:
    """``settings``: lock and concurrency, for a table that others write. ``index``: the options of its record
    index. The table has a name in the
    session's catalog while this lives; `close` forgets it. ``ahead_hours``: how far the clock that Hudi's
    instants come from is ahead of the machine's.
    """

    def __init__(
        self,
        judge: HudiJudge,
        table: Path,
        settings: Mapping[str, str],
        index: Mapping[str, str] = GLOBAL_RECORD_INDEX,
    ) -> None:
        self._judge, self._spark, self.table = judge, judge.spark, table
        self._name = f"operated_{next(_SERIAL)}"
        self._settings = {**index, **settings}
        self.ahead_hours = 0
        self._spark.sql(f"create table {self._name} using hudi location '{table}'")

    def close(self) -> None:
        """The session forgets the table's name, and its clock is right again."""
        self.set_clock(0)
        self._spark.sql(f"drop table {self._name}")

    def set_clock(self, ahead_hours: int) -> None:
        """From now on Hudi's requested and completion times in this JVM are so many hours ahead, also what a
        clean takes for now: what a machine with such a clock writes.

        No option does it: the time of an instant cannot be given, and Hudi refuses a write with another
        `hoodie.table.timeline.timezone` than the table's. So the zone that Hudi takes for UTC is another one.
        """
        if ahead_hours == self.ahead_hours:
            return
        self.ahead_hours = ahead_hours
        jvm = self._spark._jvm
        name = f"GMT{ahead_hours:+03d}:00" if ahead_hours else "UTC"
        jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone(name))
        hudi = jvm.org.apache.hudi.common
        utc = hudi.model.HoodieTimelineTimeZone.valueOf("UTC")
        _private(utc, "zoneId").set(utc, jvm.java.time.ZoneId.of(name))
        # The JVM waits until its clock has passed the newest instant that it ever made, of any table.
        generator = hudi.table.timeline.HoodieInstantTimeGenerator()
        _private(generator, "LAST_INSTANT_TIME").get(None).set("0")

    # ------------------------------------------------------------ writes

    def write(self, rows: pa.Table, operation: str, **more: str) -> None:
        """One write with the table's own settings: upsert, delete, insert_overwrite …"""
        options = {**own_options(self.table), **self._settings, **_NO_SERVICES, **more}
        self._judge._write(self.table, rows, operation, options)

    @contextmanager
    def in_flight(self, rows: pa.Table, operation: str) -> Iterator[None]:
        """A write whose files are written in here, and that takes the lock and commits at the end: a check
        before its commit runs until then.
        """
        written, go_on = (self._judge.scratch_file(name) for name in ("written", "go-on"))

        def pauses(written: str, go_on: str, most_s: float) -> int:
            # In Spark's own worker, which knows nothing of this module.
            import os
            import time

            os.close(os.open(written, os.O_CREAT))
            end = time.monotonic() + most_s
            while not os.path.exists(go_on) and time.monotonic() < end:
                time.sleep(0.05)
            return int(os.path.exists(go_on))

        self._spark.udf.register(_PAUSES, pauses, "int")
        check = f"select {_PAUSES}('{written}', '{go_on}', {_WAIT_S:.0f}d)#1"
        with ThreadPoolExecutor(1) as pool:
            write = pool.submit(self.write, rows, operation, **{**CHECKED_BY_SQL, _QUERIES: check})
            try:
                end = time.monotonic() + _WAIT_S
                while not written.exists():
                    assert not write.done(), write.result()
                    assert time.monotonic() < end, f"waited {_WAIT_S} s for the files of a write"
                    time.sleep(0.05)
                yield
            finally:
                go_on.touch()
            write.result(_WAIT_S)

    def delete_partition(self, partition: str, like: pa.Table) -> None:
        """DELETE_PARTITION; ``like`` gives the columns."""
        options = {"hoodie.datasource.write.partitions.to.delete": partition}
        self.write(like.slice(0, 0), "delete_partition", **options)

    def merge(self, rows: pa.Table, matched: str = "update set *") -> None:
        """MERGE INTO: rows whose key is there change as ``matched`` says; with all columns, others are
        inserted.
        """
        source = f"{self._name}_source"
        self._judge.frame_of(rows).createOrReplaceTempView(source)
        inserts = " when not matched then insert *" if matched.endswith("*") else ""
        with self._set({**SMALL_PARALLELISM, **SMALL_FILTERS, **self._settings, **_NO_SERVICES}):
            self._spark.sql(
                f"merge into {self._name} t using {source} s on t.id = s.id "
                f"when matched then {matched}{inserts}"
            )

    # ------------------------------------------------------------ secondary indexes

    def create_index(self, name: str, column: str) -> None:
        """CREATE INDEX: of the rows that are there, beside other writers."""
        with self._set({**self._settings, **_NO_METADATA_COMPACTION}):
            self._spark.sql(f"create index {name} on {self._name} ({column})")

    def drop_index(self, name: str) -> None:
        """DROP INDEX."""
        with self._set({**self._settings, **_NO_METADATA_COMPACTION}):
            self._spark.sql(f"drop index {name} on {self._name}")

    # ------------------------------------------------------------ table services

    def compaction(self, operation: str) -> Rows:
        """``schedule``: of every file group with log files; ``execute``: what is scheduled."""
        options = {"hoodie.compact.inline.max.delta.commits": "1"}
        return self._with_options("run_compaction", options, op=operation)

    def clustering(self, operation: str, partition: str) -> Rows:
        """``schedule``, ``execute`` or ``scheduleAndExecute``, of one partition."""
        selected = {} if operation == "execute" else {"selected_partitions": partition}
        return self._with_options("run_clustering", {}, op=operation, **selected)

    def clean(self, policy: str, keep: int, **more: str) -> Rows:
        """``policy``: Hudi's name of it. ``more``: other options than to look everywhere."""
        number = {
            "KEEP_LATEST_COMMITS": "retain_commits",
            "KEEP_LATEST_FILE_VERSIONS": "file_versions_retained",
            "KEEP_LATEST_BY_HOURS": "hours_retained",
        }[policy]
        # What an earlier clean passed is looked at again.
        options = {"hoodie.cleaner.incremental.mode": "false", "hoodie.clean.trigger.max.commits": "1"}
        return self._with_options("run_clean", {**options, **more}, clean_policy=policy, **{number: keep})

    def archive(self, least: int, most: int, commits: int = 1) -> Rows:
        """Moves old instants of the data table into its history. ``commits``: what a clean would keep."""
        numbers = {"min_commits": least, "max_commits": most, "retain_commits": commits}
        return self._in_session("archive_commits", {}, **numbers)

    # ------------------------------------------------------------ taking back

    def rollback(self, instant: str) -> Rows:
        """Takes a completed commit back."""
        return self._in_session("rollback_to_instant", _NO_METADATA_COMPACTION, instant_time=instant)

    def savepoint(self, instant: str) -> Rows:
        """Keeps a commit and its files."""
        return self._in_session("create_savepoint", {}, commit_time=instant)

    def delete_savepoint(self, instant: str) -> Rows:
        """… no more."""
        return self._in_session("delete_savepoint", {}, instant_time=instant)

    def restore(self, instant: str, **more: str) -> Rows:
        """To a savepoint."""
        options = {**_NO_METADATA_COMPACTION, **more}
        return self._in_session("rollback_to_savepoint", options, instant_time=instant)

    def shows(self, procedure: str, **arguments: Any) -> Rows:
        """What a procedure says that changes nothing."""
        return self._called(procedure, arguments)

    # ------------------------------------------------------------ inside

    def _with_options(self, procedure: str, options: Mapping[str, str], **arguments: Any) -> Rows:
        settings = {**SMALL_PARALLELISM, **SMALL_FILTERS, **self._settings, **_NO_SERVICES, **options}
        # The options of a procedure are parted by commas, as columns in a list are.
        lists = {key: value for key, value in settings.items() if "," in value}
        listed = ",".join(f"{key}={value}" for key, value in settings.items() if key not in lists)
        with self._set(lists):
            return self._called(procedure, {**arguments, "options": listed})

    def _in_session(self, procedure: str, options: Mapping[str, str], **arguments: Any) -> Rows:
        with self._set({**self._settings, **options}):
            return self._called(procedure, arguments)

    def _called(self, procedure: str, arguments: Mapping[str, Any]) -> Rows:
        named = {"table": self._name, **arguments}
        quoted = ", ".join(f"{name} => {_literal(value)}" for name, value in named.items())
        return [
            row.asDict(recursive=True) for row in self._spark.sql(f"CALL {procedure}({quoted})").collect()
        ]

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        for key, value in settings.items():
            self._spark.sql(f"SET {key}={value}")
        try:
            yield
        finally:
            for key in settings:
                self._spark.conf.unset(key)


_QUERIES: Final = "hoodie.precommit.validators.single.value.sql.queries"
CHECKED_BY_SQL: Final = {
    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
}
FAILS_BEFORE_COMMIT: Final = {**CHECKED_BY_SQL, _QUERIES: "select count(*) from <TABLE_NAME>#-1"}
_NO_SERVICES: Final = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.parquet.small.file.limit": "0",
    **_NO_METADATA_COMPACTION,
}


def _private(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f"'{value}'"
