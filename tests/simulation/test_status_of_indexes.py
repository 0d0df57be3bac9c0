"""What `status` says of secondary indexes that other writers left: those that were taken out of the table,
and those that a write made on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.kept_secondary import NAME, define, switch_on
from tests.simulation.kept_stats import switch_on as switch_stats_on
from tests.simulation.scripted_epochs import first_epoch
from tests.simulation.scripted_tagger import SCHEMA
from tests.simulation.test_status_details import taken
from tidemark.commit_coordinator.commit.context import TakenOut
from tidemark.commit_coordinator.domain.next_action import Observed
from tidemark.commit_coordinator.offline.secondary_repair import SecondaryRepair
from tidemark.hudi_format.metadata_table.own_stats import disown_stats
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryIndexPartition
from tidemark.hudi_format.table_config import PROPERTIES_PATH, TableType, read_table_config
from tidemark.hudi_format.table_repairs import drop_stats
from tidemark.table_status.warnings import WarningKind


@pytest.mark.parametrize(("hours", "warned"), [(23, True), (25, False)])
def test_an_index_that_was_taken_out_is_told_for_a_day(path: CommitPath, hours: int, warned: bool) -> None:
    path.step_coordinator()
    at_ms = path.clock.now_ms() - hours * 3_600_000
    told = told_of_indexes(path, [TakenOut("secondary_index_by_city", "nobody builds it", at_ms)])
    assert told == (["secondary_index_by_city: nobody builds it"] if warned else [])


def test_an_index_that_is_made_again_is_not_told_although_nothing_is_committed(path: CommitPath) -> None:
    path.step_coordinator()
    at_ms = path.clock.now_ms()
    out = [TakenOut(name, "nobody builds it", at_ms) for name in (NAME, "bloom_filters")]
    assert told_of_indexes(path, out) == [f"{NAME}: nobody builds it", "bloom_filters: nobody builds it"]
    switch_on(path.storage, 2)
    assert told_of_indexes(path, out) == ["bloom_filters: nobody builds it"]
    path.storage.delete(PROPERTIES_PATH)
    assert len(told_of_indexes(path, out)) == 2, "what the table has now is not known"


def test_an_index_that_a_write_made_is_told_until_it_was_compared_with_the_rows(path: CommitPath) -> None:
    def told() -> list[str]:
        found = taken(path, Observed()).warnings
        return [each.text for each in found if each.kind is WarningKind.INDEX_MADE_BY_A_WRITE]

    path.step_coordinator()
    switch_on(path.storage, 2)
    assert told() == []
    define(path.storage, "v", function="")
    assert [text.partition(" was made")[0] for text in told()] == [NAME]
    assert "`tidemark index repair by_value`" in told()[0]
    repair = SecondaryRepair(path.storage, path.clock, path.ids)
    config = read_table_config(path.storage)
    assert not repair.repair(SecondaryIndexPartition(NAME), config, SCHEMA, "v").was_wrong
    assert told() == []
    path.storage.delete(PROPERTIES_PATH)
    assert told() == [], "what the table has now is not known"


def test_column_stats_of_ours_that_were_taken_out_are_told_until_there_are_others(tmp_path: Path) -> None:
    """By each coordinator: who was not there when they were taken out has to know it, too."""

    def told() -> list[str]:
        found = taken(path, Observed()).warnings
        return [each.text for each in found if each.kind is WarningKind.STATS_TAKEN_OUT]

    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True, stats=["v"])
    path.step_coordinator()
    assert path.context is not None
    disown_stats(path.context.publishing, "its files are lost")
    assert told() == [], "they are listed"
    first_epoch(path)
    path.run_until_idle()
    path.crash()
    path.clock.advance(100_000.0)
    path.step_coordinator()
    [text] = told()
    assert text.startswith("column_stats: its files are lost, and they were taken out")
    assert "`tidemark index create --column-stats` with their columns makes them again" in text
    drop_stats(path.storage)
    assert told() == []
    switch_stats_on(path.storage, ["v"], 2)
    assert told() == []


def told_of_indexes(path: CommitPath, out: Sequence[TakenOut]) -> list[str]:
    found = taken(path, Observed(), indexes_taken_out=out).warnings
    return [each.text for each in found if each.kind is WarningKind.INDEX_TAKEN_OUT]
