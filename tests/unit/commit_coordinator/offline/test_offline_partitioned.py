"""Offline commands that a table with a partitioned record index refuses, each with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.kafka.broker import MemoryBroker
from testing.kafka.client import MemoryKafkaClient
from tests.unit.table_files import new_partitioned_table, orders, write_partitioned_config
from tidemark.commit_coordinator.offline.index_rebuild import look_before
from tidemark.commit_coordinator.offline.secondary_index import create_index
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format import validation
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds


@pytest.fixture
def config(tmp_path: Path) -> TableConfigFile:
    new_partitioned_table(tmp_path / "table").commit_rows(orders(("k1", "eu", 1)))
    return load_config(write_partitioned_config(tmp_path), {})


def test_no_secondary_index_is_made(config: TableConfigFile) -> None:
    with pytest.raises(UnsupportedTableError, match="the record index is partitioned: readers ask a global"):
        create_index(config, SystemClock(), SystemIds(), "by_note", "note", lambda _: None)
    validation.check_servable(LocalStorage(Path(config.table.path)))


def test_its_record_index_is_not_rebuilt(config: TableConfigFile) -> None:
    storage = LocalStorage(Path(config.table.path))
    with pytest.raises(UnsupportedTableError, match=r"each data partition has shards of its own.*drop"):
        look_before(config, MemoryKafkaClient(MemoryBroker(SystemClock(), SystemIds())), storage, 4)
