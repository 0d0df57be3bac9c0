"""A column that goes from `table.schema` is asked for by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from testing.terms import begin_term
from tidemark.commit_coordinator.opening.configured_columns import CONFIGURED_COLUMNS, MissingColumnsError
from tidemark.commit_coordinator.opening.table_open import OpenedTable, open_table
from tidemark.config import TableConfigFile, load_config


def configured(folder: Path, *columns: str, retired: str = "") -> TableConfigFile:
    fields: list[dict[str, object]] = [{"name": "id", "type": "string"}]
    fields += [{"name": each, "type": ["null", "string"], "default": None} for each in columns]
    (folder / "t.avsc").write_text(json.dumps({"type": "record", "name": "t", "fields": fields}))
    (folder / "t.yaml").write_text(
        f"table: {{name: t, path: ./w, record_key: [id], schema: t.avsc, retired_columns: [{retired}]}}\n"
        "input: {topics: [in]}\nkafka: {bootstrap.servers: embedded}\nstate: {path: ./state}\n"
    )
    return load_config(folder / "t.yaml", {})


class Served:
    """A table that is served again and again with what the file says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage, self.clock = folder, InMemoryStorage(), ManualClock(1_750_000_000_000)
        self.starts = 0

    def start(self, *columns: str, retired: str = "") -> OpenedTable:
        config = configured(self.folder, *columns, retired=retired)
        table = open_table(config, self.storage, self.clock)
        self.starts += 1
        table.keep_columns(begin_term(self.storage, self.starts))
        return table


def test_a_column_that_has_gone_is_named_with_both_ways_on(tmp_path: Path) -> None:
    table = Served(tmp_path)
    table.start("price", "note")
    with pytest.raises(MissingColumnsError) as refused:
        table.start("note")
    text = str(refused.value)
    assert "lacks price, which table.schema had" in text
    assert "retired_columns: [price]" in text
    assert "new name" not in text
    table.start("note", retired="price")
    assert table.start("note").schema.arrow.names[:1] == ["id"], "it was said once, and is known from then on"


def test_a_new_name_is_named_with_the_old_one(tmp_path: Path) -> None:
    table = Served(tmp_path)
    table.start("price")
    with pytest.raises(MissingColumnsError, match=r"lacks price.*prize is a new name.*cannot be renamed"):
        table.start("prize")
    table.start("prize", retired="price")


def test_columns_may_be_added_and_the_order_changed(tmp_path: Path) -> None:
    table = Served(tmp_path)
    table.start("price")
    table.start("note", "price")
    table.start("price", "note")


def test_a_table_that_has_no_record_yet_is_served_and_gets_one(tmp_path: Path) -> None:
    table = Served(tmp_path)
    table.start("price")
    table.storage.delete(CONFIGURED_COLUMNS)
    table.start("note")
    with pytest.raises(MissingColumnsError, match="note"):
        table.start("price")


def test_a_damaged_record_is_named_with_the_way_on(tmp_path: Path) -> None:
    table = Served(tmp_path)
    table.start("price")
    table.storage.replace(CONFIGURED_COLUMNS, b'{"columns": 7}')
    with pytest.raises(MissingColumnsError, match=r"configured-columns\.json is damaged.*delete that file"):
        table.start("price")
