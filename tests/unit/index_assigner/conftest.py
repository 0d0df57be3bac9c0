"""Fixtures of the index tests."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.unit.index_assigner.index_world import MANY, Assigner, DataTable, memory_folder
from tidemark.index_assigner.index import due_loads


@pytest.fixture(autouse=True)
def small_shards_get_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of tests have few keys."""
    monkeypatch.setattr(due_loads, "_ENTRIES_MIN", 0)


@pytest.fixture
def folder():
    """For RocksDB folders."""
    path = Path(tempfile.mkdtemp(dir=memory_folder()))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def assigners(folder):
    """Makes assigners, each in a folder by name, and closes them."""
    made = []

    def make(table, name="a", **settings):
        made.append(Assigner(table, folder / name, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def table() -> DataTable:
    """A table whose index is compacted, so that all its entries lie in base files."""
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    return table
