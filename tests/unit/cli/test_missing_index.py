"""A record index that `hoodie.properties` lists, and whose files are gone: refused by every command that
opens the table, also where the configuration does not say how many shards there are.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.opening.table_open import read_table
from tidemark.config import load_config
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.storage.local import LocalStorage


@pytest.fixture
def file(tmp_path: Path) -> Path:
    new_table(tmp_path / "table").commit(orders(("k1", "2026-01-01", 1)))
    shutil.rmtree(tmp_path / "table" / RECORD_INDEX_FOLDER)
    made = write_config(tmp_path, "embedded")
    made.write_text(made.read_text().replace("  index: {shards: 2}\n", ""))
    return made


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_describe(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "describe", "-c", str(file), "--json"]) == 0
    document = printed(capsys)
    assert (document["servable"], document["shards"]) == (False, 0)
    assert "no shards" in document["not_servable"]
    assert "hudi-beside.md" in document["not_servable"]


def test_adopt(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "adopt", "-c", str(file)]) == 2
    assert "no shards" in capsys.readouterr().err


def test_doctor(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-c", str(file), "--json"]) == 1
    found = {each["check"]: each for each in printed(capsys)["checks"]}
    assert found["table"]["status"] == "fails"
    assert "the record index has no shards" in found["table"]["findings"][0]["text"]


def test_a_start(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="no shards"):
        read_table(load_config(file), LocalStorage(tmp_path / "table"))
