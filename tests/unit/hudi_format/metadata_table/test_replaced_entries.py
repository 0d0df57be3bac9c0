"""Another engine's delete partition or insert overwrite takes the entry of a row that lives elsewhere."""

import pytest

from tests.replaced_groups import replace_commit
from tests.unit.hudi_format.doubles import ManualClock
from tests.unit.hudi_format.metadata_tables import IndexedTable, file_id, write_archive
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.replaced_entries import ReplacedEntries
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline


def replace(
    table: IndexedTable, groups: list[int], keys: list[str], operation: str = "DELETE_PARTITION"
) -> str:
    """Replaces the file groups, and deletes the index entries of the keys; returns the instant."""
    instant = table.times.next()
    table.storage.create(f".hoodie/timeline/{instant}.replacecommit.requested", b"")
    table.storage.create(f".hoodie/timeline/{instant}.replacecommit.inflight", b"")
    table.metadata_commit(instant, dict.fromkeys(keys))
    content = replace_commit({"p": [file_id(each) for each in groups]}, operation)
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


def hidden(table: IndexedTable, operation: str = "DELETE_PARTITION", *, is_ahead: bool = True) -> str:
    """Group 2 is replaced, and group 1 whose base file has k and a: by the times of the timeline before.
    Returns the instant of the former. ``is_ahead``: it is the first of the two, by a clock that is ahead.
    """
    if not is_ahead:
        replace(table, [1], ["k", "a"])
        return replace(table, [2], [], operation)
    times, clock = table.times, ManualClock()
    clock.current_ms += 5000
    table.times = InstantGenerator(clock)
    hiding = replace(table, [2], [], operation)
    table.times = times
    replace(table, [1], ["k", "a"])
    return hiding


def take_back(table: IndexedTable, instant: str) -> None:
    """As a restore to a savepoint before it."""
    for root in (DATA_ROOT, METADATA_TABLE_ROOT):
        folder = f"{root}/timeline"
        for each in list(table.storage.list(folder)):
            if each.name.startswith(instant):
                table.storage.delete(f"{folder}/{each.name}")


def check(table: IndexedTable) -> None:
    look(ReplacedEntries(table.storage), table)


def look(entries: ReplacedEntries, table: IndexedTable) -> None:
    storage = table.storage
    entries.check(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))


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


def test_an_entry_of_a_row_that_a_clustering_moved_is_missed() -> None:
    table = IndexedTable()
    table.commit({"k": 1, "a": 1})
    table.commit({"k": 2})
    replace(table, [2], [], "CLUSTER")
    replace(table, [1], ["k", "a"])
    with pytest.raises(UnsupportedTableError, match=r"took .* of 1 keys .*'k'"):
        check(table)


@pytest.mark.parametrize("is_ahead", [True, False], ids=["its clock is ahead", "afterwards"])
@pytest.mark.parametrize("operation", ["INSERT_OVERWRITE", "DELETE_PARTITION"])
def test_an_entry_may_go_as_long_as_a_later_replacecommit_hides_its_row(
    operation: str, is_ahead: bool
) -> None:
    """By the times of the timeline it came later. Which was first cannot be told where clocks differ, and
    need not be: as long as it stands there is no row. A restore may take it back alone.
    """
    table = IndexedTable()
    table.commit({"k": 1, "a": 1})
    table.commit({"k": 2})
    hiding = hidden(table, operation, is_ahead=is_ahead)
    entries = ReplacedEntries(table.storage)
    for _ in range(2):
        look(entries, table)
    check(table)
    take_back(table, hiding)
    for each in (entries, ReplacedEntries(table.storage)):
        with pytest.raises(UnsupportedTableError, match=r"took .* of 1 keys .*'k'"):
            look(each, table)


def test_a_clustering_is_passed_over() -> None:
    table = IndexedTable()
    table.commit({"k": 1, "a": 2})
    replace(table, [1], ["k", "a"], "CLUSTER")
    check(table)


def test_an_index_that_was_built_anew_since_is_right() -> None:
    table = IndexedTable()
    table.commit({"k": 2})
    replace(table, [1], ["k"])
    table.build_anew()
    check(table)
