"""Another engine's log compaction takes the entries of rows that its folded log files delete."""

from __future__ import annotations

import pytest

from tests.replaced_groups import replace_commit
from tests.unit.hudi_format.metadata_tables import IndexedTable, file_id
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.folded_entries import FoldedEntries
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata


def begun(table: IndexedTable) -> Instant:
    by = Unfenced(table.storage)
    return create_inflight(by, create_requested(by, table.times.next(), Action.LOG_COMPACTION, b"plan"))


def fold(table: IndexedTable, keys: list[str], inflight: Instant | None = None) -> str:
    """A log compaction that deletes the index entries of the keys; returns its instant."""
    inflight = inflight or begun(table)
    table.metadata_commit(inflight.requested, dict.fromkeys(keys))
    content = encode_commit_metadata(CommitMetadata(operation_type="LOG_COMPACT"))
    complete(Unfenced(table.storage), inflight, table.times.next(), content)
    return inflight.requested


def look(entries: FoldedEntries, table: IndexedTable) -> None:
    storage = table.storage
    entries.check(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))


def moved() -> IndexedTable:
    """k moved from group 1 to group 2, d was deleted."""
    table = IndexedTable()
    table.commit({"k": 1, "d": 1, "a": 1})
    table.commit({"k": 2, "d": None})
    return table


@pytest.mark.parametrize("later", ["at once", "compacted since"])
def test_an_entry_of_a_row_that_moved_is_missed(later: str) -> None:
    table = moved()
    entries = FoldedEntries(table.storage)
    look(entries, table)
    instant = fold(table, ["k", "d"])
    if later == "compacted since":
        table.finish_compaction(table.schedule_compaction(), {"a": 1})
    for _ in range(2):
        with pytest.raises(UnsupportedTableError, match=rf"log compaction {instant} .* of 1 keys .*'k'"):
            look(entries, table)


def test_entries_of_keys_without_rows_may_go() -> None:
    table = moved()
    entries = FoldedEntries(table.storage)
    fold(table, ["d", "nobody"])
    look(entries, table)
    fold(table, [])
    look(entries, table)


def test_an_entry_of_a_later_write_is_not_deleted() -> None:
    """k came back while the log compaction ran: its write was requested later and completed earlier."""
    table = moved()
    inflight = begun(table)
    table.commit({"d": 3})
    fold(table, ["d"], inflight)
    assert table.index_content()["d"] == 3
    look(FoldedEntries(table.storage), table)


def test_an_entry_of_a_row_that_a_replacecommit_removed_may_go() -> None:
    table = moved()
    instant = table.times.next()
    content = replace_commit({"p": [file_id(2)]}, "DELETE_PARTITION")
    table.storage.create(f".hoodie/timeline/{instant}.replacecommit.requested", b"")
    table.storage.create(f".hoodie/timeline/{instant}_{table.times.next()}.replacecommit", content)
    fold(table, ["k"])
    look(FoldedEntries(table.storage), table)


def test_an_index_that_was_built_since_is_right() -> None:
    table = moved()
    fold(table, ["k"])
    table.build_anew()
    look(FoldedEntries(table.storage), table)


def test_where_the_files_are_gone_a_warning_asks_for_a_verification(caplog: pytest.LogCaptureFixture) -> None:
    table = moved()
    instant = fold(table, ["k"])
    folder = ".hoodie/metadata/record_index"
    for name in list(table.storage.names(folder)):
        if instant in name:
            table.storage.delete(f"{folder}/{name}")
    entries = FoldedEntries(table.storage)
    for _ in range(2):
        look(entries, table)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        f"whether the log compaction {instant} of another engine took index entries of rows that had moved "
        "elsewhere cannot be told any more"
    ]
