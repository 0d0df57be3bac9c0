"""Another engine's delete partition or insert overwrite takes the entry of a row that lives elsewhere."""

import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable, file_id, write_archive
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.replaced_entries import ReplacedEntries
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.avro_container import encode_container


def replace(
    table: IndexedTable, groups: list[int], keys: list[str], operation: str = "DELETE_PARTITION"
) -> str:
    """Replaces the file groups, and deletes the index entries of the keys; returns the instant."""
    instant = table.times.next()
    table.storage.create(f".hoodie/timeline/{instant}.replacecommit.requested", b"")
    table.storage.create(f".hoodie/timeline/{instant}.replacecommit.inflight", b"")
    table.metadata_commit(instant, dict.fromkeys(keys))
    record = {
        "partitionToWriteStats": {},
        "compacted": False,
        "extraMetadata": {},
        "version": 1,
        "operationType": operation,
        "partitionToReplaceFileIds": {"p": [file_id(each) for each in groups]},
    }
    content = encode_container("replace-commit-metadata", record)
    table.storage.create(f".hoodie/timeline/{instant}_{table.times.next()}.replacecommit", content)
    return instant


def archive(table: IndexedTable, instant: str) -> None:
    """Moves a replacecommit into the history."""
    found = load_timeline(table.storage).find(instant)
    assert found is not None
    path = f".hoodie/timeline/{found.file_name}"
    row = (instant, str(found.completion), "replacecommit", table.storage.read(path))
    write_archive(table.storage, [row])
    for name in (found.file_name, f"{instant}.replacecommit.requested", f"{instant}.replacecommit.inflight"):
        table.storage.delete(f".hoodie/timeline/{name}")


def check(table: IndexedTable) -> None:
    storage = table.storage
    ReplacedEntries(storage).check(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))


@pytest.mark.parametrize("compacted", [False, True], ids=["logs", "base file before"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "compacted since"])
def test_an_entry_that_named_a_group_which_stayed_is_missed(compacted: bool, later: bool) -> None:
    """k moved from group 1 to group 2; the base file of group 1 still has it."""
    table = IndexedTable()
    table.commit({"k": 1, "a": 1, "b": 3})
    if compacted:
        table.finish_compaction(table.schedule_compaction(), dict(table.live))
    table.commit({"k": 2})
    check(table)
    instant = replace(table, [1], ["k", "a", "nobody"])
    if later:
        table.finish_compaction(table.schedule_compaction(), {"b": 3})
    with pytest.raises(UnsupportedTableError, match=rf"delete partition {instant} took .* of 1 keys .*'k'"):
        check(table)


def test_entries_of_the_groups_that_were_replaced_may_go() -> None:
    table = IndexedTable()
    table.commit({"k": 1, "a": 1, "b": 3})
    replace(table, [1], ["k", "a", "nobody"])
    check(table)


@pytest.mark.parametrize("archived", [False, True], ids=["active", "archived"])
def test_an_entry_that_named_a_group_which_was_replaced_before_may_go(archived: bool) -> None:
    """k moved to a log file of group 2, and group 2 was replaced: Hudi left the entry behind, and there is
    no row. The base file of group 1 still has k.
    """
    table = IndexedTable()
    table.commit({"k": 1, "a": 1})
    table.commit({"k": 2})
    before = replace(table, [2], [])
    replace(table, [1], ["k", "a"])
    if archived:
        archive(table, before)
    check(table)


@pytest.mark.parametrize("operation", ["CLUSTER", "DELETE_PARTITION"])
def test_an_entry_of_a_row_that_another_replacecommit_hides_is_missed(operation: str) -> None:
    """A clustering before moved the row, and a drop that came later may be taken back."""
    table = IndexedTable()
    table.commit({"k": 1, "a": 1})
    table.commit({"k": 2})
    if operation == "CLUSTER":
        replace(table, [2], [], operation)
    replace(table, [1], ["k", "a"])
    if operation != "CLUSTER":
        replace(table, [2], [], operation)
    with pytest.raises(UnsupportedTableError, match=r"took .* of 1 keys .*'k'"):
        check(table)


def test_a_clustering_is_passed_over() -> None:
    table = IndexedTable()
    table.commit({"k": 1, "a": 2})
    replace(table, [1], ["k", "a"], "CLUSTER")
    check(table)


def test_an_index_that_was_built_anew_since_is_right() -> None:
    table = IndexedTable()
    table.commit({"k": 2})
    replace(table, [1], ["k"])
    for each in load_timeline(table.storage, METADATA_TABLE_ROOT).completed():
        if each.requested.startswith("00000"):
            name = f".hoodie/metadata/.hoodie/timeline/{each.requested}_{{}}.{each.action.value}"
            table.storage.create(name.format(table.times.next()), b"")
            table.storage.delete(name.format(each.completion))
    check(table)
