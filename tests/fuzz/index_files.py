"""The metadata table's files as targets, each by the reader that production uses; log files lie beside their
commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from testing.memory_storage import InMemoryStorage
from tests.fuzz.target import Target
from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.metadata_table.log_records import (
    SourcedBlock,
    read_log_blocks,
    stored_entries,
)
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import StoredEntries
from tidemark.hudi_format.metadata_table.partitions.record_index import decode_entries
from tidemark.hudi_format.storage.base import name_of, parent_of

_ARCHIVE: Final = "record_index/mor_global"
_INDEXED: Final = "20261121101134902"
_COMMIT: Final = f".hoodie/metadata/.hoodie/timeline/{_INDEXED}_20261121101142608.deltacommit"


def index_files(golden_file: Callable[[str, str], bytes]) -> list[Target]:
    """`golden_file`: archive, end of the path -> content."""
    commit = golden_file(_ARCHIVE, _COMMIT)
    folder = ".hoodie/metadata"
    index_log = f".record-index-0000-0_{_INDEXED}.log.1_1-18-30"
    files_log = f".files-0000-0_{_INDEXED}.log.1_0-22-38"
    return [
        Target(
            "record index base file",
            f"{folder}/record_index/b.hfile",
            golden_file("record_index/many_blocks", "record-index-0000-0_1-648-2682_20261121101224888.hfile"),
            _hfile,
        ),
        Target(
            "record index log file",
            f"{folder}/record_index/{index_log}",
            golden_file(_ARCHIVE, index_log),
            lambda storage, path: _index_log(_blocks(storage, path, commit)),
        ),
        Target(
            "files log file",
            f"{folder}/files/{files_log}",
            golden_file(_ARCHIVE, files_log),
            lambda storage, path: _files_log(_blocks(storage, path, commit)),
            False,
        ),
    ]


def _hfile(storage: InMemoryStorage, path: str) -> int:
    reader = HFileReader.open(storage, path)
    content = reader.read_all()
    reader.locate(pa.array(["a", "zz", "ключ"]))
    return len(decode_entries(StoredEntries(content.keys, content.values, reader.schema, path)))


def _blocks(storage: InMemoryStorage, path: str, commit: bytes) -> list[SourcedBlock]:
    """The blocks of a log file that lies beside its commit."""
    storage.create(_COMMIT, commit)
    return read_log_blocks(storage, parent_of(path), [name_of(path)])


def _index_log(blocks: list[SourcedBlock]) -> int:
    return sum(len(decode_entries(stored_entries(each))) for each in blocks)


def _files_log(blocks: list[SourcedBlock]) -> int:
    return sum(1 for _ in FILES.merge(map(stored_entries, blocks)))
