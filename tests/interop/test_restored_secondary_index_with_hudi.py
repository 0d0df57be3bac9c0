"""Spark's restore drops a secondary index that our epochs kept, and leaves its definition. Hudi on Spark
finds all rows at every step: behind the restore, while an epoch of ours waits, when Spark's next write has
built the index anew or our coordinator has taken the definition out, and behind epochs of ours on top.

`make services-interop`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.served_story import takes_minutes
from tests.interop.test_secondary_index_of_epochs_with_hudi import LITERALS, Asked, Town
from tidemark.commit_coordinator.commit import unfinished_index
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import load_timeline

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_SERVICES" not in os.environ, reason="make services-interop"),
]

NAME: Final = "secondary_index_by_city"
FOLDER: Final = f".hoodie/metadata/{NAME}"
MOR, COW = TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE
_STEPS: Final = 6


@pytest.mark.parametrize(
    ("table_type", "is_older"),
    [
        (MOR, False),
        pytest.param(MOR, True, marks=takes_minutes),
        pytest.param(COW, False, marks=takes_minutes),
        pytest.param(COW, True, marks=takes_minutes),
    ],
)
def test_sparks_next_write_builds_it_anew(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, is_older: bool
) -> None:
    """``is_older``: the savepoint is from before the index was made."""
    asked = restored(judge, tmp_path, table_type, is_older)
    waits(asked)
    asked.upserts("s2", "s3")
    assert NAME in read_table_config(asked.life.storage).metadata_partitions
    asked.life.settle()
    asked.finds("the epoch that waited until Spark built the index")
    asked.life.epochs_of_ours(2)
    asked.finds("epochs on top")
    asked.upserts("s4")
    asked.finds("Spark's upsert on top of these")
    asked.spark.close()


@pytest.mark.parametrize("table_type", [pytest.param(each, marks=takes_minutes) for each in (MOR, COW)])
def test_it_is_taken_out_where_nobody_builds_it(
    judge: HudiJudge, tmp_path: Path, table_type: TableType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = restored(judge, tmp_path, table_type, is_older=False)
    waits(asked)
    life = asked.life
    monkeypatch.setattr(unfinished_index, "NOBODY_BUILDS_S", 0)
    life.settle()
    assert NAME not in read_index_definitions(life.storage)
    finds_all_rows(asked, "the epoch behind the index that was taken out")
    asked.upserts("s2")
    assert life.storage.list(FOLDER) == []
    finds_all_rows(asked, "Spark's upsert")
    asked.make("city")
    life.epochs_of_ours(1)
    asked.finds("the index that was made again, and an epoch")
    asked.spark.close()


def restored(judge: HudiJudge, tmp_path: Path, table_type: TableType, is_older: bool) -> Asked:
    """A table whose index Spark dropped, since it restored the table to a savepoint of our newest epoch."""
    asked = Asked(judge, Town(tmp_path / "t", table_type), ("city",))
    life = asked.life
    life.epochs_of_ours(3)
    if not is_older:
        asked.make("city")
        life.epochs_of_ours(2)
    life.meet_spark()
    writes = [each for each in load_timeline(life.storage).completed() if each.action.is_write]
    savepoint = writes[-1].requested
    asked.spark.savepoint(savepoint)
    if is_older:
        asked.make("city")
    kept = dict(life.model)
    asked.upserts("s0", "s1")
    asked.finds("Spark's upsert behind the savepoint")
    life.meet_spark()
    asked.spark.restore(savepoint)
    life.model = kept
    asked.spark.delete_savepoint(savepoint)
    assert NAME in read_index_definitions(life.storage)
    assert NAME not in read_table_config(life.storage).metadata_partitions
    assert life.storage.list(FOLDER) == []
    finds_all_rows(asked, "the restore")
    return asked


def waits(asked: Asked) -> None:
    """An epoch directly behind the restore is not committed, and Spark reads as before."""
    life = asked.life
    before, model, places = life.state().committed.epoch, dict(life.model), dict(life.places)
    life._tag_epoch()
    for _ in range(_STEPS):
        life.meet_spark()
        life.step_coordinator()
    assert life.state().committed.epoch == before
    assert life.coordinator is not None
    awaited = life.coordinator.seen.awaited
    assert awaited is not None
    assert awaited.index == NAME
    tagged = life.model, life.places
    life.model, life.places = model, places
    finds_all_rows(asked, "an epoch that waits")
    life.model, life.places = tagged


def finds_all_rows(asked: Asked, stage: str) -> None:
    """As `Asked.finds`, where readers have no index and read all files."""
    keys_of: dict[str | None, set[str]] = {}
    for key, row in asked.life.model.items():
        keys_of.setdefault(row["city"], set()).add(key)
    for value, expected in keys_of.items():
        condition = "city IS NULL" if value is None else f"city = {LITERALS['city'](value)}"
        found, _ = asked._look_up(condition)
        assert found == expected, (stage, condition, expected - found, found - expected)
