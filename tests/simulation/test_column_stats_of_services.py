"""A table that keeps column stats lives with all table services: its records are those of the files that it
lists, however often its metadata table was compacted, cleaned and archived.
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.simulation.kept_stats import FOLDER, define, switch_on
from tests.simulation.lived_table import LivedTable
from tests.simulation.test_deaths_of_services import check
from tests.simulation.watched_life import SOON, At, WatchedLife, nothing
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services import cleans
from tidemark.epoch_protocol.service_entries import ServiceKind, ServiceVoided
from tidemark.hudi_format.column_ranges import column_ranges
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    column_stats_key,
    file_keys,
)
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.stream_runtime.failpoint import FailpointHitError

COLUMNS = [*STATS_META_COLUMNS, "id", "ts", "v"]


def lived(folder: Path, seconds: int) -> LivedTable:
    life = LivedTable(folder, SOON, groups=3, keys=24, seed=5)
    switch_on(life.storage, COLUMNS[len(STATS_META_COLUMNS) :], 2)
    for _ in range(seconds):
        life.second()
    life.settle()
    return life


def instants(life: LivedTable, root: str, *actions: Action) -> list[str]:
    return [found.requested for found in load_timeline(life.storage, root).completed(*actions)]


def deletes(life: LivedTable, instant: str) -> dict[str, int]:
    """Partition -> how many keys a deltacommit of the metadata table deletes there."""
    found = load_timeline(life.storage, METADATA_TABLE_ROOT).find(instant)
    assert found is not None
    content = life.storage.read(f"{METADATA_TABLE_ROOT}/timeline/{found.file_name}")
    stats = decode_commit_metadata(content, instant).write_stats
    return {partition: sum(stat.num_deletes for stat in found) for partition, found in stats.items()}


def test_the_records_are_those_of_the_listed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleans, "STATS_KEYS", 4 * len(COLUMNS))
    life = lived(tmp_path, 45)
    snapshot = MetadataTableSnapshot.load(life.storage)
    groups = snapshot.slices["column_stats"]
    assert [each.file_id for each in groups] == ["col-stats-0000-0", "col-stats-0001-0"]
    assert all(each.base_file is not None for each in groups)
    parts = [
        part
        for each in groups
        for part in slice_entries(life.storage, FOLDER, each, snapshot.validity.is_valid)
    ]
    stats = COLUMN_STATS.merge(parts)
    listed = set()
    for partition, name, _ in snapshot.files:
        listed |= set(file_keys(partition, name, COLUMNS))
        if name.startswith("."):
            continue
        rows = pq.read_table(io.BytesIO(life.storage.read(f"{partition}/{name}")))
        expected = {found.column: found for found in column_ranges(rows, COLUMNS)}
        keys = {column: column_stats_key(column, partition, name) for column in expected}
        assert {column: stats[key].range for column, key in keys.items()} == expected
    assert stats.keys() <= listed
    cleaned = [deletes(life, clean) for clean in instants(life, ".hoodie", Action.CLEAN)]
    assert all(sorted(partitions) == ["column_stats", "files"] for partitions in cleaned)
    # A clean takes no more than so many keys, and has one of each column of a file.
    keys_of_cleans = {partitions["column_stats"] for partitions in cleaned}
    assert max(keys_of_cleans) == 4 * len(COLUMNS)
    assert all(keys % len(COLUMNS) == 0 for keys in keys_of_cleans)
    # Files of superseded slices go, as those of the record index do.
    assert len({name.split("_")[-1] for name in life.storage.names(FOLDER) if name.endswith(".hfile")}) < 12


@pytest.mark.parametrize("kind", [ServiceKind.COMPACT_DATA, ServiceKind.CLEAN_DATA])
def test_what_was_decided_with_other_columns_is_taken_back(tmp_path: Path, kind: ServiceKind) -> None:
    """The lock was lost after the decision, and somebody made the stats anew: nothing of the action is there
    yet, so it is planned again with the stats of now.
    """
    life = WatchedLife(tmp_path / "t", groups=1)
    switch_on(life.storage, ("id", "ts", "v"), 2)

    def change_and_die(at: At, name: str) -> None:
        if at.kind is kind and name == CoordinatorFailpoint.AFTER_SERVICE_DECIDED:
            life.on_hit = nothing
            define(life.plain, ("id", "v"))
            raise FailpointHitError(name)

    life.on_hit = change_and_die
    seconds = iter(range(60))
    while life.on_hit is not nothing:
        assert next(seconds) >= 0
        life.second()
    number = max(life.decided_services())
    assert life.planned_services()[number].kind is kind
    life.second()
    check(life)
    end = life.ended()[number]
    assert isinstance(end, ServiceVoided)
    assert life.names_with(life.planned_services()[number].instant) == []
