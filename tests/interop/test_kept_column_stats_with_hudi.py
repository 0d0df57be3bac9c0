"""Column stats that live with a table: made from its rows, kept by epochs and by all table services, and by
Spark on top; after each of them Hudi's data skipping loses no row.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tests.files_with_stats import files_without_records
from tests.interop.filters import COLUMNS, Filter, Zoo
from tests.interop.judge import HudiJudge
from tests.interop.skipping import judge_skipping
from tests.simulation.lived_table import LivedTable
from tests.simulation.other_engine import list_data_files
from tests.simulation.scripted_tagger import SCHEMA
from tests.simulation.test_life_with_services import config
from tests.simulation.test_own_column_stats import scan_of
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, file_keys
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_FILTERS" not in os.environ, reason="make filters"),
]

OURS: Final = ["id", "v"]
FILTERS: Final = 8
SERVED: Final = {
    ServiceKind.COMPACT_DATA,
    ServiceKind.COMPACT_INDEX,
    ServiceKind.CLEAN_DATA,
    ServiceKind.CLEAN_INDEX,
    ServiceKind.ARCHIVE,
}


def skips_right(judge: HudiJudge, life: LivedTable, zoo: Zoo) -> None:
    assert kept_stats_columns(life.storage, read_table_config(life.storage)) == OURS
    # No file has a row of the last one: it leaves out what can be left out at all.
    filters = [*(zoo.filter() for _ in range(FILTERS)), Filter("id > 'z'")]
    judge_skipping(judge, Path(life.storage.base_uri), filters, fewer=can_be_left_out(life))


def can_be_left_out(life: LivedTable) -> bool:
    """Whether there is a slice all of whose files have records: one with a string above which there is none
    of 64 characters has none, and readers look at its slice whatever they search.
    """
    storage, snapshot = life.storage, MetadataTableSnapshot.load(life.storage)
    folder = ".hoodie/metadata/column_stats"
    parts = [
        part
        for group in snapshot.slices["column_stats"]
        for part in slice_entries(storage, folder, group, snapshot.validity.is_valid)
    ]
    keys = COLUMN_STATS.merge(parts).keys()
    return any(
        all(keys >= set(file_keys(each.partition_path, name, OURS)) for name in named if name)
        for each in TableView.load(storage).slices(list_data_files(storage))
        for named in [(each.base_file, *each.log_files)]
    )


def missing_services(life: LivedTable) -> set[ServiceKind]:
    return SERVED - {planned.kind for planned in life.planned_services().values()}


def epochs(life: LivedTable, seconds: int) -> None:
    """Epochs and whatever services become due; tagged anew where the coordinator found another writer."""
    for _ in range(seconds):
        generation = life.state().generation
        life.second()
        if life.state().generation > generation:
            life.tagger.claim_anew(life.state())
    life.settle()


def test_skipping_stays_right_whatever_serves_the_table(judge: HudiJudge, tmp_path: Path) -> None:
    life = LivedTable(tmp_path / "t", config(2), groups=3, keys=30, seed=5)
    epochs(life, 3)
    scan_of(life).create(life.clock)
    zoo = Zoo(3, columns={"id": COLUMNS["s"], "v": COLUMNS["l"]})
    epochs(life, 4)
    zoo.see(life.rows().values())
    skips_right(judge, life, zoo)

    seconds = 0
    while missing_services(life) and seconds < 90:
        epochs(life, 5)
        seconds += 5
    assert not missing_services(life)
    scan = scan_of(life)
    assert not scan.wrong()
    assert not files_without_records(life.storage, SCHEMA, OURS)
    skips_right(judge, life, zoo)

    path = Path(life.storage.base_uri)
    theirs = [{"id": f"s{number}", "day": "d1", "ts": 10_000, "v": 5_000 + number} for number in range(3)]
    options = foreign_writer_options(str(path), stats=OURS)
    zoo.see(theirs)
    assert life.context is not None
    life.context.lock.free()
    judge.upsert(path, pa.Table.from_pylist(theirs, schema=SCHEMA.arrow), options)
    skips_right(judge, life, zoo)
    assert verify_table(life.storage, lambda _: None).agrees
