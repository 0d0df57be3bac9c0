"""A writer whose folder is not the table whose epoch it is given writes nothing, and says what to correct."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemark.commit.v1 import commit_pb2
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.ledger_client.table_identity import TABLE_ID
from tidemark.stream_writer.bootstrap import _planner
from tidemark.stream_writer.errors import OtherTableError
from tidemark.stream_writer.same_table import check_same_ledger


@pytest.fixture
def config(tmp_path: Path) -> TableConfigFile:
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "fields": [{"name": "id"}]}))
    (tmp_path / "t.yaml").write_text(
        "table: {name: orders, path: ./t, record_key: [id], schema: s.avsc}\n"
        "input: {topics: [in]}\nkafka: {bootstrap.servers: 'here:1'}\nstate: {path: ./state}\n"
    )
    return load_config(tmp_path / "t.yaml", {})


def storage_of(config: TableConfigFile, ledger: str) -> LocalStorage:
    storage = LocalStorage(Path(config.table.path))
    if ledger:
        storage.create(TABLE_ID, ledger.encode())
    return storage


def test_what_belongs_together_is_written(config: TableConfigFile):
    storage = storage_of(config, "ledger-a")
    check_same_ledger(config, storage, "ledger-a")
    check_same_ledger(config, storage, "")


@pytest.mark.parametrize(
    ("ledger", "says"),
    [("ledger-b", "/t has the ledger ledger-b: correct table.path"), ("", "/t has no ledger: correct")],
)
def test_another_table_s_epoch_is_refused_before_anything_is_read_or_written(
    config: TableConfigFile, ledger: str, says: str
):
    storage_of(config, ledger)
    begun = commit_pb2.BeginResponse(epoch=1, ledger="ledger-a")
    plan = _planner(config)
    for _ in range(2):
        with pytest.raises(OtherTableError, match=says) as told:
            plan(begun, 1)
    assert "serves the ledger ledger-a of a table orders" in str(told.value)
    written = [each for each in Path(config.table.path).rglob("*") if each.is_file()]
    assert len(written) == (1 if ledger else 0)
