"""A new table has column stats of the columns that `table.index.column_stats` names, and what a later change
of that key does not do is told.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tests.unit.commit_coordinator.opening.test_table_creation import (
    DEFINITION,
    SHARDS,
    START_MS,
    Dying,
    KilledError,
    finished_after_each_death,
)
from tests.unit.table_files import write_config
from tidemark.commit_coordinator.opening.configured_stats import other_stats
from tidemark.commit_coordinator.opening.table_creation import CreationError, create_or_finish
from tidemark.commit_coordinator.opening.table_open import open_table
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS, read_index_definitions, stats_columns
from tidemark.hudi_format.metadata_table.index_creation import unlist_indexes
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats, kept_stats_columns
from tidemark.hudi_format.metadata_table.stats_layout import stats_groups
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.schema import SchemaError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.validation import check_servable


def check_stats(storage: Storage, columns: list[str]) -> None:
    check_servable(storage)
    config = read_table_config(storage)
    assert kept_stats_columns(storage, config) == columns
    assert foreign_stats(storage, config) is None
    assert stats_columns(read_index_definitions(storage)) == [*STATS_META_COLUMNS, *columns]
    metadata = load_timeline(storage, METADATA_TABLE_ROOT)
    assert [instant.requested[-2:] for instant in metadata.completed()] == ["00", "01", "02"]
    assert stats_groups(storage, InstantValidity(load_timeline(storage), metadata)) == 2


def test_killed_at_every_write_it_is_finished_with_its_stats() -> None:
    deaths = 0
    for storage in finished_after_each_death(
        lambda storage, clock: create_or_finish(storage, DEFINITION, SHARDS, clock, ["b", "a"])
    ):
        deaths += 1
        check_stats(storage, ["b", "a"])
    assert deaths >= 20


def test_a_creation_is_not_finished_with_other_columns() -> None:
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    with pytest.raises(KilledError):
        create_or_finish(Dying(storage, 8, True), DEFINITION, SHARDS, clock, ["a"])
    with pytest.raises(CreationError, match=r"another configuration .* column stats of a\)"):
        create_or_finish(storage, DEFINITION, SHARDS, clock)


def configured(folder: Path, columns: str) -> TableConfigFile:
    file = write_config(folder)
    file.write_text(file.read_text().replace("shards: 2", f"shards: 2, column_stats: [{columns}]"))
    return load_config(file, {})


def test_the_first_start_makes_them_and_later_ones_change_nothing(tmp_path: Path) -> None:
    storage, clock = InMemoryStorage(), ManualClock(START_MS)
    config = configured(tmp_path, "day, at")
    assert open_table(config, storage, clock).created
    check_stats(storage, ["day", "at"])
    assert other_stats(config, storage) is None
    for key, kept in (("at", "keeps column stats of day,at"), ("note", "index create --column-stats note")):
        changed = configured(tmp_path, key)
        assert not open_table(changed, storage, clock).created
        found = other_stats(changed, storage)
        assert found is not None
        assert kept in f"{found.text}. {found.remedy}"
    check_stats(storage, ["day", "at"])
    assert other_stats(configured(tmp_path, "at, day"), storage) is None
    assert other_stats(configured(tmp_path, ""), storage) is None, "the key is not given"
    unlist_indexes(storage, frozenset({"column_stats"}))
    found = other_stats(config, storage)
    assert found is not None
    assert "of no column" in found.text
    assert "leave the key out" in found.remedy


def test_a_column_that_can_have_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    with pytest.raises(SchemaError, match=r"no column stats for nope \(the table has no such column\)"):
        open_table(configured(tmp_path, "at, nope"), storage, ManualClock(START_MS))
    assert not list(storage.walk(""))
