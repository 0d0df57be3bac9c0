"""Bins that are worked off: what is prepared, what a second run finds, what becomes of errors and deaths."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import CountingIds, ManualClock
from tests.unit.hudi_format.file_group.test_slice_reader import (
    EVENT,
    FILE_ID,
    SCHEMA,
    Log,
    instant,
    stored_slice,
)
from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.errors import ErrorKind
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.errors import (
    CorruptFileError,
    FencedOutError,
    FileMissingError,
    UnsupportedTableError,
    damage_in,
)
from tidemark.hudi_format.key_digest import key_digest
from tidemark.hudi_format.publication.locate import open_publication, service_files_of
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.tickets import TermId
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.table_services.operations import MergeOperation, MergeOutcome
from tidemark.stream_writer.table_services import in_child
from tidemark.stream_writer.table_services.bins import (
    BinReport,
    Blame,
    MergeBin,
    MergeFailed,
    NumberedOperation,
    encode_bin,
)
from tidemark.stream_writer.table_services.child import ORPHANED, read_message, write_message
from tidemark.stream_writer.table_services.in_child import run_in_child
from tidemark.stream_writer.table_services.merges import blame_of, merge_bin

NOW = "20260102000000000"
OUTPUT = f"eu/{FILE_ID}_0-0-0_{NOW}.parquet"


class Table:
    """A table in a folder with one file group, and a service action that is open."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(folder)
        definition = TableDefinition(
            name="t",
            table_type=TableType.MERGE_ON_READ,
            record_key_fields=("id",),
            ordering_fields=("ts",),
        )
        create_table(self.storage, definition)
        memory = InMemoryStorage()
        logs = [Log([("k1", 2, "new", False), ("k9", 1, "more", False)], [("k2", 5)])]
        base = [(f"k{number}", 1, "base", False) for number in range(4)]
        each = stored_slice(memory, base, logs, EVENT)
        for info in memory.walk("eu"):
            self.storage.create(info.path, memory.read(info.path))
        names = (each.base_file, each.log_files)
        self.operation = MergeOperation("eu", FILE_ID, instant(0), *names, 1, 1)
        self.term = self.begin(1)
        self.token = self.term.open_service(1)

    def begin(self, offset: int) -> Term:
        publication = open_publication(self.storage, ManualClock(), CountingIds())
        return publication.open_term(TermId(offset, "ledger"))

    def bin(self, *operations: MergeOperation) -> MergeBin:
        numbered = tuple(NumberedOperation(*each) for each in enumerate(operations or (self.operation,)))
        folder = str(self.storage.base_uri)
        return MergeBin(folder, self.token, NOW, False, SCHEMA.avro_json, 64 << 20, "", True, numbered)

    def run(self, work: MergeBin) -> list[MergeOutcome | MergeFailed]:
        said: list[MergeOutcome | MergeFailed] = []
        merge_bin(work, self.storage, service_files_of(self.storage, work.token), said.append)
        return said


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "t")


def outcome(said: MergeOutcome | MergeFailed) -> MergeOutcome:
    assert isinstance(said, MergeOutcome), said
    return said


def check_rows(table: Table, found: MergeOutcome) -> None:
    assert not table.storage.exists(OUTPUT), "nobody sees the file before it is published"
    assert found.ticket is not None
    table.term.publish([found.ticket])
    rows = pq.read_table(pa.BufferReader(table.storage.read(OUTPUT)))
    assert sorted(rows.column("_hoodie_record_key").to_pylist()) == ["k0", "k1", "k3", "k9"]
    assert (found.rows, found.inserts, found.updates, found.deletes, found.log_records) == (4, 1, 1, 1, 3)
    assert (found.digest_count, found.digest_sum) == key_digest(rows.column("_hoodie_record_key"))
    assert found.size == len(table.storage.read(OUTPUT))


def test_a_bin_prepares_its_files_and_says_what_is_in_them(table: Table) -> None:
    (said,) = table.run(table.bin())
    check_rows(table, outcome(said))


def test_a_second_run_finds_the_first_ones_file(table: Table) -> None:
    (first,) = table.run(table.bin())
    for name in table.operation.log_files:
        table.storage.delete(f"eu/{name}")
    assert table.run(table.bin()) == [first]


def test_a_successor_hands_the_action_out_again_and_the_work_is_done(table: Table) -> None:
    (first,) = table.run(table.bin())
    table.term = table.begin(2)
    with_old_token = table.run(table.bin())
    assert isinstance(with_old_token[0], MergeFailed)
    table.token = table.term.open_service(1)
    (second,) = table.run(table.bin())
    assert msgspec.structs.replace(outcome(second), ticket=None) == msgspec.structs.replace(
        outcome(first), ticket=None
    )
    check_rows(table, outcome(second))


def test_a_missing_file_fails_its_operation_and_not_the_others(table: Table) -> None:
    gone = msgspec.structs.replace(table.operation, log_files=(".gone_1.log.1_0-0-0",))
    failed, done = table.run(table.bin(gone, table.operation))
    assert isinstance(failed, MergeFailed)
    assert (failed.ordinal, failed.error, failed.kind) == (0, "FileMissingError", ErrorKind.RETRYABLE)
    assert ".gone_1.log" in failed.message
    assert outcome(done).ordinal == 1


def test_nothing_more_is_tried_once_the_action_is_over(table: Table) -> None:
    table.term.close_service(1)
    said = table.run(table.bin(table.operation, table.operation))
    assert [(type(each), getattr(each, "kind", None)) for each in said] == [(MergeFailed, ErrorKind.FENCED)]


def test_a_full_disk_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidemark.hudi_format.publication.staged.PosixGrowingFile.write", full)
    (said,) = table.run(table.bin())
    assert isinstance(said, MergeFailed)
    assert "No space left on device" in said.message


def test_shards_of_the_index_are_merged_below_the_metadata_table(tmp_path: Path) -> None:
    indexed = IndexedTable(shards=1)
    indexed.commit({"a": 1, "b": 2})
    indexed.commit({"a": None})
    (each,) = indexed.snapshot().slices["record_index"]
    operation = MergeOperation("record_index", each.file_id, each.base_instant, None, each.log_files, 1, 0)
    table = Table(tmp_path / "t")
    for info in indexed.storage.walk(".hoodie/metadata/record_index"):
        table.storage.create(info.path, indexed.storage.read(info.path))
    (said,) = table.run(msgspec.structs.replace(table.bin(operation), is_index=True))
    found = outcome(said)
    assert found.ticket is not None
    assert found.ticket.path == f".hoodie/metadata/record_index/{each.file_id}_0-0-0_{NOW}.hfile"
    assert (found.rows, found.digest_count) == (1, 1)


def test_a_child_process_does_it_and_tells_its_memory(table: Table) -> None:
    gone = msgspec.structs.replace(table.operation, log_files=(".gone_1.log.1_0-0-0",))
    report = run_in_child(table.bin(table.operation, gone))
    assert [each.error for each in report.failures] == ["FileMissingError"], report.failures
    assert report.peak_bytes > 1 << 20
    check_rows(table, report.outcomes[0])


def test_an_executor_elsewhere_keeps_what_does_not_fit_in_sparks_folder(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's folder for temporary files may be small there, and Spark does not clear it."""
    for scratch, folders, taken in [
        ("", f"{tmp_path}", str(tmp_path)),
        ("", f"{tmp_path},{tmp_path / 'other'}", str(tmp_path)),
        ("", "", ""),
        ("", f"{tmp_path / 'gone'}", ""),
        ("", f"{tmp_path / 'gone'},{tmp_path}", str(tmp_path)),
        ("/here", f"{tmp_path}", "/here"),
    ]:
        (tmp_path / "other").mkdir(exist_ok=True)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folders)
        seen: list[MergeBin] = []
        monkeypatch.setattr(in_child, "run_in_child", partial(_note, seen))
        in_child.run_bin(encode_bin(msgspec.structs.replace(table.bin(), scratch=scratch)))
        assert [each.scratch for each in seen] == [taken]


def _note(seen: list[MergeBin], work: MergeBin, **_: object) -> BinReport:
    seen.append(work)
    return BinReport(())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "by signal 9"),
        ("import sys; sys.exit('out of memory')", "exit code 1: out of memory"),
    ],
)
def test_the_death_of_a_child_is_the_failure_of_one_operation(table: Table, code: str, said: str) -> None:
    report = run_in_child(table.bin(table.operation, table.operation), (sys.executable, "-c", code))
    (failed,) = report.failures
    assert (failed.ordinal, report.outcomes) == (0, ())
    assert said in failed.message


def test_a_child_ends_when_its_parent_is_gone() -> None:
    reads, writes = os.pipe()
    command = [sys.executable, "-m", "tidemark.stream_writer.table_services.child"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, stdin=reads, env=environment)
    os.close(reads)
    os.close(writes)
    assert child.wait(300) == ORPHANED


def test_messages_have_lengths(tmp_path: Path) -> None:
    with (tmp_path / "pipe").open("w+b") as pipe:
        write_message(pipe, b"abc")
        write_message(pipe, b"")
        pipe.write(b"\0\0\0\x05ab")
        pipe.seek(0)
        assert [read_message(pipe) for _ in range(4)] == [b"abc", b"", None, None]
    assert BinReport(()).failures == ()


@pytest.mark.parametrize(
    ("error", "blame"),
    [
        (CorruptFileError("a block"), Blame.GROUP),
        (UnsupportedTableError("a block of that kind", "Compact with Hudi"), Blame.GROUP),
        (OSError(errno.EIO, "Input/output error"), Blame.PERHAPS),
        (MemoryError(), Blame.PERHAPS),
        (TypeError("a mistake"), Blame.PERHAPS),
        (FileMissingError("f"), Blame.NONE),
        (FencedOutError("gone"), Blame.NONE),
        *[(OSError(code, "no"), Blame.NONE) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)],
    ],
)
def test_which_errors_a_file_group_is_the_cause_of(error: Exception, blame: Blame) -> None:
    assert blame_of(error) is blame


def test_a_decoder_that_got_no_memory_does_not_prove_that_the_bytes_are_damaged() -> None:
    with pytest.raises(CorruptFileError) as caught, damage_in("f", "a block"):
        raise MemoryError
    assert blame_of(caught.value) is Blame.PERHAPS
