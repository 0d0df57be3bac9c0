"""Spark clusters a table with a secondary index that our epochs keep: Hudi on Spark finds all rows by it in
the new files, behind epochs that change rows of these, and when our clean has taken the replaced ones.

`make services-interop`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.shared_life import SharedTable
from tests.interop.spark_operations import COMPACTS_INDEX
from tests.interop.test_secondary_index_of_epochs_with_hudi import GROUPS, Asked, Town
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_config import TableType

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_SERVICES" not in os.environ, reason="make services-interop"),
]

DAYS: Final = 3
_CLEANS_MOST: Final = 5


@pytest.mark.parametrize("table_type", list(TableType))
def test_spark_finds_rows_behind_its_clustering(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    asked = Asked(judge, Town(tmp_path / "t", table_type), ("city",))
    life = asked.life
    life.epochs_of_ours(4)
    asked.make("city")
    life.epochs_of_ours(3)
    asked.upserts("s0", "s1")
    replaced = clustered(judge, asked, day=0)
    asked.finds("Spark's clustering")
    life.epochs_of_ours(4)
    asked.finds("epochs in the clustered file group")
    our_clean_takes(life, replaced)
    if table_type is TableType.MERGE_ON_READ:
        life.until_done(ServiceKind.COMPACT_DATA)
    for kind in (ServiceKind.COMPACT_INDEX, ServiceKind.CLEAN_INDEX):
        life.until_done(kind)
    asked.finds("our cleans and compactions")
    asked.upserts("s2", **COMPACTS_INDEX)
    replaced = clustered(judge, asked, day=1)
    asked.finds("Spark's compaction of the index, and another clustering")
    life.epochs_of_ours(2)
    our_clean_takes(life, replaced)
    asked.finds("epochs, and our clean")
    asked.spark.close()


def clustered(judge: HudiJudge, asked: Asked, day: int) -> set[str]:
    """The rows of a partition are in one new file group; our next epochs write to it. Returns the file ids of
    the replaced groups of ours.
    """
    life, partition = asked.life, f"d{day}"
    life.meet_spark()
    asked.spark.clustering("scheduleAndExecute", partition)
    keys = [key for key, row in life.model.items() if row["day"] == partition]
    (place,) = set(judge.record_locations(asked.path, keys).values())
    assert place[0] == partition
    replaced = set(life.group_ids[day::DAYS])
    assert place[1] not in replaced
    assert files_of(life, replaced)
    for number in range(day, GROUPS, DAYS):
        life.group_ids[number] = place[1]
    return replaced


def our_clean_takes(life: SharedTable, file_ids: set[str]) -> None:
    """Nothing is left of these groups."""
    for _ in range(_CLEANS_MOST):
        life.until_done(ServiceKind.CLEAN_DATA)
        if not files_of(life, file_ids):
            return
    raise AssertionError(files_of(life, file_ids))


def files_of(life: SharedTable, file_ids: Iterable[str]) -> list[str]:
    names = [name for day in range(DAYS) for name in life.storage.names(f"d{day}")]
    return [name for name in names if name.removeprefix(".").startswith(tuple(file_ids))]
