"""Log files that lost their end at the end of a block, so that what is left looks whole."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from testing.ids import SeededIds
from tests.unit.table_files import table_schema
from tests.unit.table_verification.damage import changed_table
from tidemark.commit_coordinator.calls.placement import Placement, load_listed
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.file_group.log_blocks import check_log_blocks, read_data_log, read_log_deletes
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.file_group.slice_reader import merge_columns
from tidemark.hudi_format.log_file import read_blocks
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import MergeMode, TableType
from tidemark.hudi_format.table_view import TableView
from tidemark.table_verification.verify import verify_table

SCHEMA = table_schema()
ORDERING = OrderingField.of(SCHEMA, "at")
COLUMNS = merge_columns(pa.schema([]), SCHEMA, ORDERING)
MODE = MergeMode.EVENT_TIME_ORDERING


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "t"
    changed_table(path, TableType.MERGE_ON_READ)
    return path


@pytest.fixture
def storage(sound: Path, tmp_path: Path) -> LocalStorage:
    return LocalStorage(Path(shutil.copytree(sound, tmp_path / "t")))


def data_log(storage: LocalStorage) -> str:
    """A log file with rows and deletes: two blocks at least."""
    snapshot = MetadataTableSnapshot.load(storage)
    slices = TableView.of(storage, snapshot.data_timeline).slices(snapshot.files.names())
    logs = [path for each in slices for path in each.paths() if ".log." in path]
    return next(path for path in logs if len(read_blocks(storage.read(path), path)) > 1)


def cut(storage: LocalStorage, path: str, size: int) -> None:
    storage.replace(path, storage.read(path)[:size])


def refused(path: str) -> str:
    return rf"{re.escape(path)} has \d+ bytes, and was committed with \d+: its end is lost"


def test_a_log_file_that_is_shorter_than_the_table_lists_it_is_refused_before_it_is_served(
    storage: LocalStorage,
) -> None:
    path = data_log(storage)
    ends = [block.offset for block in read_blocks(storage.read(path), path)]
    whole = len(read_data_log(storage, path, COLUMNS, MODE, ORDERING).changes)
    load_listed(storage, ReadableLogs(storage, "at"), Placement(1 << 20, SeededIds(1)))
    for end in reversed(ends):
        cut(storage, path, end)
        if end:
            # Whole blocks: nothing in the file tells that there were more.
            assert len(read_data_log(storage, path, COLUMNS, MODE, ORDERING).changes) < whole
        with pytest.raises(CorruptFileError, match=refused(path)):
            load_listed(storage, ReadableLogs(storage, "at"), Placement(1 << 20, SeededIds(1)))


def test_an_empty_log_file_that_was_committed_with_content_is_refused_by_every_reader(
    storage: LocalStorage,
) -> None:
    path = data_log(storage)
    cut(storage, path, 0)
    for read in (read_data_log, read_log_deletes):
        with pytest.raises(CorruptFileError, match=refused(path)):
            read(storage, path, COLUMNS, MODE, ORDERING)
    found = verify_table(storage, lambda _: None).findings
    assert any(path.rpartition("/")[2] in each for lines in found.examples.values() for each in lines)


def test_an_empty_log_file_of_the_record_index_is_refused(storage: LocalStorage) -> None:
    snapshot = MetadataTableSnapshot.load(storage)
    paths = [f"{RECORD_INDEX_FOLDER}/{name}" for name in snapshot.shard(ShardId(0)).file_slice.log_files]
    newest = paths[-1]
    cut(storage, newest, 0)
    with pytest.raises(CorruptFileError, match=refused(newest)):
        MetadataTableSnapshot.load(storage).shard(ShardId(0)).entries()


def test_an_empty_log_file_of_the_list_of_files_is_refused(storage: LocalStorage) -> None:
    name = MetadataTableSnapshot.load(storage).slices["files"][0].log_files[-1]
    cut(storage, f".hoodie/metadata/files/{name}", 0)
    with pytest.raises(CorruptFileError, match=refused(f".hoodie/metadata/files/{name}")):
        _ = MetadataTableSnapshot.load(storage).files


def test_an_empty_log_file_that_no_commit_names_holds_nothing(storage: LocalStorage) -> None:
    """What a task that was killed may leave beside the file of the one that took its place."""
    path = data_log(storage)
    left = re.sub(r"_[^_]*$", "_7-7-7", path)
    assert left != path
    unknown = re.sub(r"_\d{17}\.", "_20200101000000000.", path)
    for empty in (left, unknown, "2026-01-01/.no-log-name"):
        storage.create(empty, b"")
        assert len(read_data_log(storage, empty, COLUMNS, MODE, ORDERING).changes) == 0
        assert len(read_log_deletes(storage, empty, COLUMNS, MODE, ORDERING)) == 0
        check_log_blocks(storage, empty, "at")
