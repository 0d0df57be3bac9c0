"""`tidemark init --table` of a table whose record index is divided by data partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.table_files import new_partitioned_table, orders
from tidemark.cli.main import main
from tidemark.config import load_config


def test_an_existing_table_keeps_the_kind_of_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number of shards is for partitions that are new: as many as the largest one has, or the default."""
    monkeypatch.chdir(tmp_path)
    writer = new_partitioned_table(tmp_path / "table")
    assert main(["init", "--table", "table", "--topic", "in", "--out", "empty.yaml"]) == 0
    writer.shards = 3
    writer.commit_rows(orders(("a", "d1", 1)))
    assert main(["init", "--table", "table", "--topic", "in", "--out", "there.yaml"]) == 0
    for name, shards in (("empty", 8), ("there", 3)):
        index = load_config(tmp_path / f"{name}.yaml").table.index
        assert (index.kind.value, index.shards) == ("partitioned", shards)
    assert main(["table", "adopt", "-c", "there.yaml"]) == 0
