"""Hudi on Spark skips files by the column stats that our epochs and compactions write, and misses no row; the
same after it has written on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.files_with_stats import files_without_records
from tests.interop.filters import Filter
from tests.interop.judge import HudiJudge
from tests.interop.skipping import judge_skipping
from tests.simulation.commit_path import CommitPath
from tests.simulation.lived_table import LivedTable
from tests.simulation.scripted_epochs import GROUP_A, first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import SCHEMA
from tests.simulation.watched_life import SOON
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.commit.foreign_writers import kept_stats_options
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import Action, load_timeline

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = ("id", "ts", "v")
OF_SPARK = kept_stats_options(COLUMNS)
GROUPS = 4
FILTERS: Mapping[str, set[str]] = {
    "v between 100 and 101": {"g1-0", "g1-1"},
    "v = 7777": {"g0-0"},
    "id = 'g3-1'": {"g3-1"},
    "v = 1 and ts = 1": {"g0-1"},
}
"""Of a filter the keys that it finds."""


def commit(life: LivedTable, rows: list[tuple[str, int, int, DataOp]]) -> None:
    """An epoch of (key, ordering value, value, operation); `g2-1` lies in file group 2."""
    life.tag([(row(key, ts, v, "d1"), op, life.group_ids[int(key[1])]) for key, ts, v, op in rows])
    life.step_coordinator()
    life.settle()


def scanned(life: LivedTable) -> ColumnStatsScan:
    scan = ColumnStatsScan(life.storage, read_table_config(life.storage), SCHEMA, COLUMNS)
    scan.scan()
    return scan


def check(judge: HudiJudge, life: LivedTable, filters: Mapping[str, set[str]]) -> None:
    scan = scanned(life)
    assert scan.wrong() == []
    assert files_without_records(life.storage, SCHEMA, list(COLUMNS)) == []
    read = listed = 0
    for condition, keys in filters.items():
        found = []
        for skips in ("true", "false"):
            settings = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": skips}
            frame = judge._frame(Path(life.storage.base_uri), settings).where(condition)
            rows, files = judge.rows_and_files(frame)
            assert {each["id"] for each in rows} == keys, (condition, skips)
            found.append(files)
        read, listed = read + found[0], listed + found[1]
    assert 3 * read < 2 * listed, f"{read} of {listed} files were read"


def test_a_new_table_s_first_commits_are_skipped_right(judge: HudiJudge, tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True, stats=("id", "v"))
    first_epoch(path)
    second_epoch(path)
    path.run_until_idle()
    found = judge_skipping(judge, tmp_path, [Filter("v = 3"), Filter("id = 'c'"), Filter("v = 1")])
    assert (found.found, found.lost) == (3, {})


def test_a_slice_whose_log_file_only_deletes_is_left_out(judge: HudiJudge, tmp_path: Path) -> None:
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True, stats=("id", "v"))
    first_epoch(path)
    path.run_until_idle()
    path.tag([(row("a", 2, 0), DataOp.DELETE, GROUP_A)])
    path.run_until_idle()
    # Of both file groups, the one of c alone has what the first two ask for, and none what the last one does.
    found = judge_skipping(judge, tmp_path, [Filter("id = 'c'"), Filter("id > 'b'"), Filter("v = 9")])
    assert (found.found, found.lost, found.files_read) == (2, {}, 2)


def test_epochs_and_compactions_keep_the_stats_by_which_hudi_skips_files(
    judge: HudiJudge, tmp_path: Path
) -> None:
    life = LivedTable(tmp_path, SOON, groups=GROUPS, keys=1, seed=3)
    groups = range(GROUPS)
    commit(life, [(f"g{g}-{n}", 1, 100 * g + n, DataOp.INSERT) for g in groups for n in range(3)])
    assert scanned(life).create(life.clock) == GROUPS * 6
    commit(life, [("g0-0", 2, 7776, DataOp.UPDATE), ("g3-2", 2, 0, DataOp.DELETE)])
    commit(life, [("g0-0", 3, 7777, DataOp.UPDATE), ("g1-1", 3, 101, DataOp.UPDATE)])
    commit(life, [("g0-2", 4, 0, DataOp.DELETE)])
    commit(life, [("g0-0", 6, 7777, DataOp.UPDATE)])
    check(judge, life, FILTERS)
    for _ in range(40):
        life.step_coordinator()
        life.work_on_services()
    assert load_timeline(life.storage).completed(Action.COMPACTION, Action.COMMIT)
    commit(life, [("g1-2", 5, 103, DataOp.UPDATE), ("g2-3", 5, 203, DataOp.INSERT)])
    check(judge, life, {**FILTERS, "v = 103": {"g1-2"}, "id = 'g2-3'": {"g2-3"}})
    theirs = [row("g2-0", 8, 5_000, "d1"), row("g9-0", 8, 5_001, "d1")]
    judge.upsert(Path(life.storage.base_uri), pa.Table.from_pylist(theirs, SCHEMA.arrow), OF_SPARK)
    by_spark = {"v = 200": set(), "v = 5000": {"g2-0"}, "v = 5001": {"g9-0"}, "v = 103": {"g1-2"}}
    check(judge, life, {**by_spark, "ts >= 6": {"g0-0", "g2-0", "g9-0"}})
