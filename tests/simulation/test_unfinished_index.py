"""Another writer builds an index while epochs are written: none is committed until it is whole, and what a
dead builder left is taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.simulation.commit_path import ATTEMPTS_MAX, CommitPath
from tests.simulation.kept_secondary import FOLDER, NAME, changes, define, switch_on
from tests.simulation.scripted_epochs import GROUP_A, check_end, first_epoch, row, second_epoch
from tidemark.commit_coordinator.commit.unfinished_index import NOBODY_BUILDS_S
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.index_definitions import (
    INDEX_DEFINITIONS_PATH,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.own_stats import own_stats_columns, write_own_folder
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.table_config import (
    TableType,
    read_properties,
    read_table_config,
    update_properties,
)

SOON_S = 3.0


def second_written(folder: Path) -> CommitPath:
    """The first epoch is committed, the second is written and not decided."""
    path = CommitPath(folder, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    return path


def waits(path: CommitPath, steps: int = 3 * ATTEMPTS_MAX) -> None:
    """Steps; nothing is committed, and what a builder needs is free."""
    for _ in range(steps):
        path.step()
        path.clock.advance(SOON_S)
    assert path.coordinator is not None
    seen = path.coordinator.seen
    assert (seen.halted, path.state().committed.epoch, path.state().attempts) == (None, 1, 1)
    assert seen.awaited is not None
    assert seen.awaited.index is not None
    assert seen.awaited.index in seen.awaited.reason
    assert not path.storage.exists(".hoodie/lock"), "a builder needs the lock"
    assert path.storage.list(".hoodie/.heartbeat") == [], "CREATE INDEX waits for pending instants"


def test_no_epoch_is_committed_until_the_index_is_listed(tmp_path: Path) -> None:
    """CREATE INDEX has begun with the table as it is: the epoch that was written would be in no index."""
    path = second_written(tmp_path)
    define(path.storage, "v")
    waits(path)
    path.crash()
    waits(path, 2)
    switch_on(path.storage, 2, at=InstantGenerator(path.clock).next())
    path.clock.advance(SOON_S)
    path.run_until_idle()
    entries = {("put", "3$a"), ("put", "3$e"), ("delete", "1$a"), ("delete", "1$b")}
    assert changes(path.storage, str(path.state().committed.instant)) == entries
    assert path.state().generation == 0, "no key moved"
    check_end(path)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_definitions_that_are_being_written_are_read_again(tmp_path: Path, share: float) -> None:
    """Hudi writes the file in place, and CREATE INDEX does so without the table's lock: it was taken for
    damage, and the coordinator stopped for good.
    """
    path = second_written(tmp_path)
    whole = path.storage.read(INDEX_DEFINITIONS_PATH)
    path.storage.replace(INDEX_DEFINITIONS_PATH, whole[: int(share * len(whole))])
    for _ in range(3 * ATTEMPTS_MAX):
        path.step()
        path.clock.advance(SOON_S)
    assert path.coordinator is not None
    seen = path.coordinator.seen
    assert (seen.halted, path.state().committed.epoch) == (None, 1)
    assert INDEX_DEFINITIONS_PATH in str(seen.trouble)
    assert not path.storage.exists(".hoodie/lock"), "who writes the file may need it"
    path.storage.replace(INDEX_DEFINITIONS_PATH, whole)
    path.clock.advance(SOON_S)
    path.run_until_idle()
    assert str(seen.trouble) == "None"
    assert path.state().committed.epoch == 2
    check_end(path)


def test_the_second_in_which_an_index_is_being_finished_halts_nothing(tmp_path: Path) -> None:
    path = second_written(tmp_path)
    update_properties(path.storage, {keys.METADATA_PARTITIONS_INFLIGHT: NAME})
    waits(path, 4)
    update_properties(path.storage, {}, [keys.METADATA_PARTITIONS_INFLIGHT])
    path.clock.advance(SOON_S)
    path.run_until_idle()
    check_end(path)


@pytest.mark.parametrize(
    ("begun_before_s", "is_inflight", "limit_s"),
    [(None, False, 120), (0, False, 3_600), (3_000, False, 600), (4_000, False, 120), (4_000, True, 3_600)],
)
def test_what_a_dead_builder_left_is_taken_out(
    tmp_path: Path, begun_before_s: int | None, is_inflight: bool, limit_s: int
) -> None:
    """A pending indexing instant has no heartbeat, so its writer is given an hour from its begin. One of an
    earlier build that failed, which stays pending for ever, gives nobody an hour.
    """
    path = second_written(tmp_path)
    if begun_before_s is not None:
        instant = InstantGenerator(path.clock).next()
        path.storage.create(f".hoodie/timeline/{instant}.indexing.requested", b"")
        path.clock.advance(begun_before_s)
        if is_inflight:
            path.storage.create(f".hoodie/timeline/{instant}.indexing.inflight", b"")
    define(path.storage, "v")
    before: Mapping[str, object] = read_index_definitions(path.storage)
    waits(path, 4)
    path.clock.advance(limit_s - 60.0)
    waits(path, 4)
    assert read_index_definitions(path.storage) == before
    path.clock.advance(60.0)
    path.run_until_idle()
    assert read_index_definitions(path.storage) == {
        name: definition for name, definition in before.items() if name != NAME
    }
    assert path.state().committed.epoch == 2


BUILDS_LEFT = [
    "column_stats",
    "bloom_filters",
    "expr_index_x",
    "vector_index_x",
    "bloom_filters,partition_stats",
]


@pytest.mark.parametrize("names", BUILDS_LEFT)
def test_a_dead_build_of_any_kind_does_not_stop_the_stream_for_ever(tmp_path: Path, names: str) -> None:
    """Hudi's indexer names what it builds in the property, and dies."""
    path = second_written(tmp_path)
    update_properties(path.storage, {keys.METADATA_PARTITIONS_INFLIGHT: names})
    waits(path, 4)
    path.clock.advance(NOBODY_BUILDS_S)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert keys.METADATA_PARTITIONS_INFLIGHT not in read_table_config(path.storage).properties
    check_end(path)


@pytest.mark.parametrize("needed", ["files", "record_index"])
def test_what_the_table_needs_is_never_taken_out(tmp_path: Path, needed: str) -> None:
    path = second_written(tmp_path)
    update_properties(path.storage, {keys.METADATA_PARTITIONS_INFLIGHT: f"{needed},bloom_filters"})
    waits(path, 4)
    path.clock.advance(3_600)
    waits(path, 4)
    path.clock.advance(3_600)
    waits(path, 4)
    config = read_table_config(path.storage)
    assert config.metadata_partitions_inflight == {needed}
    assert config.metadata_partitions == {"files", "record_index"}
    assert path.coordinator is not None
    awaited = path.coordinator.seen.awaited
    assert awaited is not None
    assert f"{needed} is not taken out" in awaited.reason


def test_stats_that_were_ours_are_not_once_a_dead_builder_was_at_them(tmp_path: Path) -> None:
    path = second_written(tmp_path)
    write_own_folder(path.storage, InstantGenerator(path.clock).next(), ["v"], {"v": "LONG"})
    update_properties(
        path.storage,
        {
            keys.METADATA_PARTITIONS: "column_stats,files,record_index",
            keys.METADATA_PARTITIONS_INFLIGHT: "column_stats",
        },
    )
    waits(path, 4)
    path.clock.advance(NOBODY_BUILDS_S)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert own_stats_columns(path.storage) is None
    assert read_table_config(path.storage).metadata_partitions == {"files", "record_index"}


def test_an_expression_index_that_is_built_is_awaited_and_refused_when_it_is_there(tmp_path: Path) -> None:
    """Readers use it from its definition on: what is committed meanwhile would be missing in it."""
    path = second_written(tmp_path)
    define_expression(path)
    waits(path)
    update_properties(path.storage, {keys.METADATA_PARTITIONS: "expr_index_day,files,record_index"})
    path.clock.advance(SOON_S)
    for _ in range(8):
        path.step()
    assert path.coordinator is not None
    halted = path.coordinator.seen.halted
    assert halted is not None
    assert "expr_index_day: only Spark can compute its expression" in halted
    assert "DROP INDEX expr_index_day ON" in halted
    assert path.state().committed.epoch == 1


def test_a_dead_build_of_an_expression_index_is_taken_out(tmp_path: Path) -> None:
    """Left there, Spark's next write would build it, and the stream halt."""
    path = second_written(tmp_path)
    before = read_index_definitions(path.storage)
    define_expression(path)
    waits(path, 4)
    path.clock.advance(NOBODY_BUILDS_S)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert read_index_definitions(path.storage) == before
    check_end(path)


@pytest.mark.parametrize("table_type", list(TableType))
def test_an_index_that_a_restore_dropped_is_taken_out_and_told(tmp_path: Path, table_type: TableType) -> None:
    """Hudi's restore takes its name from the property and moves its folder away; the definition stays. Nobody
    writes with Spark again, which would build it.
    """
    path = CommitPath(tmp_path, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    switch_on(path.storage, 2)
    second_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    drop_as_restores_do(path)
    waits(path, 4)
    path.clock.advance(NOBODY_BUILDS_S)
    path.run_until_idle()
    assert path.state().committed.epoch == 2
    assert NAME not in read_index_definitions(path.storage)
    assert path.storage.list(FOLDER) == [], "no entry of a dropped index is written"
    assert path.context is not None
    told = path.context.indexes_taken_out
    assert told.keys() == {NAME}
    assert told[NAME].names == NAME
    assert "`tidemark index create by_value --column v` makes it again" in told[NAME].reason
    assert "the stream would halt" in told[NAME].reason, "of a column of another type"
    check_end(path)

    switch_on(path.storage, 2)
    path.tag([(row("a", 4, 4), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    assert path.context.indexes_taken_out == {}, "it is there again"


def test_each_index_that_was_taken_out_is_told_until_it_is_there_again(tmp_path: Path) -> None:
    path = second_written(tmp_path)
    define(path.storage, "v")
    waits(path, 4)
    path.clock.advance(NOBODY_BUILDS_S)
    path.run_until_idle()
    path.tag([(row("a", 4, 4), DataOp.UPDATE, GROUP_A)])
    update_properties(path.storage, {keys.METADATA_PARTITIONS_INFLIGHT: "bloom_filters,vector_index_x"})
    for _ in range(4):
        path.step()
        path.clock.advance(SOON_S)
    path.clock.advance(NOBODY_BUILDS_S)
    path.run_until_idle()
    assert path.context is not None
    told = path.context.indexes_taken_out
    assert told.keys() == {NAME, "bloom_filters", "vector_index_x"}
    assert "Whoever made it can make it again" in told["bloom_filters"].reason

    switch_on(path.storage, 2)
    path.tag([(row("a", 5, 5), DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    assert path.context.indexes_taken_out.keys() == {"bloom_filters", "vector_index_x"}


def drop_as_restores_do(path: CommitPath) -> None:
    """What Hudi 1.2.0 leaves of a secondary index behind `rollback_to_savepoint`."""
    listed = set(read_properties(path.storage)[keys.METADATA_PARTITIONS].split(",")) - {NAME}
    update_properties(path.storage, {keys.METADATA_PARTITIONS: ",".join(sorted(listed))})
    path.storage.delete_tree(FOLDER)


def define_expression(path: CommitPath) -> None:
    """As CREATE INDEX does, before it builds anything."""
    definition = {
        "indexName": "expr_index_day",
        "indexType": "column_stats",
        "indexFunction": "from_unixtime",
        "sourceFields": ["v"],
        "indexOptions": {"expr": "from_unixtime", "format": "yyyy-MM-dd"},
        "version": "V2",
    }
    definitions = {**read_index_definitions(path.storage), "expr_index_day": definition}
    write_index_definitions(path.storage, definitions)
