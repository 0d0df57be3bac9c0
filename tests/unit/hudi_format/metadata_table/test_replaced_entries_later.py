"""What the check of replaced entries says when the files are gone by which it tells: no refusal lapses."""

from __future__ import annotations

import itertools

import pytest

from testing.terms import begin_term
from tests.unit.hudi_format.metadata_table.test_replaced_entries import (
    archive,
    check,
    hidden,
    look,
    replace,
    take_back,
)
from tests.unit.hudi_format.metadata_tables import IndexedTable, write_archive
from tidemark.hudi_format.errors import FencedOutError, UnsupportedTableError
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.checked_index import (
    CHECKED_INDEX,
    checked_replacecommits,
    keep_checked,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.replaced_entries import ReplacedEntries
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.replaced_rows import ReplacedRows
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, WriteStat, encode_commit_metadata

TOOK = r"took the index entries of 1 keys .*'k'"
UNTOLD = r"cannot be told any more.*tidemark verify"
NUMBERS = itertools.count(1)
"""Of terms."""


def dropped(moved: bool) -> tuple[IndexedTable, str]:
    """A base file of the index, k moved from group 1 to group 2 or not, group 1 dropped; and its instant."""
    table = IndexedTable()
    table.commit({"k": 1, "a": 1, "b": 3})
    table.finish_compaction(table.schedule_compaction(), dict(table.live))
    table.commit({"z": 3, "k": 2 if moved else 1})
    instant = replace(table, [1], ["k", "a"])
    for key in ("k", "a"):
        if table.live[key] == 1:
            del table.live[key]
    return table, instant


def compact_index(table: IndexedTable, times: int = 1) -> None:
    for _ in range(times):
        table.finish_compaction(table.schedule_compaction(), {"b": 3, "z": 3})
        table.commit({"z": 3})


def clean_index(table: IndexedTable, until: str) -> None:
    """Files of the record index whose instant is that one or older."""
    for each in list(table.storage.list(RECORD_INDEX_FOLDER)):
        parsed = parse_data_file(each.name)
        if parsed is not None and parsed.instant <= until:
            table.storage.delete(each.path)


def archive_index(table: IndexedTable, until: str, *, readable: bool = True) -> None:
    """Instants of the metadata table that were requested then or before; bootstrap ones, too."""
    storage, folder = table.storage, f"{METADATA_TABLE_ROOT}/timeline"
    rows = [
        (
            each.requested,
            str(each.completion),
            each.action.completed_word,
            storage.read(f"{folder}/{each.file_name}"),
        )
        for each in load_timeline(storage, METADATA_TABLE_ROOT).completed()
        if each.requested <= until
    ]
    for each in list(storage.list(folder)):
        if each.name[:1].isdigit() and each.name[:17] <= until:
            storage.delete(f"{folder}/{each.name}")
    if readable:
        write_archive(storage, rows, METADATA_TABLE_ROOT)


def refused(table: IndexedTable, said: str) -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedTableError, match=said):
            check(table)


@pytest.mark.parametrize("moved", [True, False], ids=["a row moved", "none did"])
@pytest.mark.parametrize("what", ["replacecommit", "commits of the index", "both"])
def test_what_is_archived_and_not_cleaned_is_told(moved: bool, what: str) -> None:
    table, instant = dropped(moved)
    compact_index(table)
    if what != "commits of the index":
        archive(table, instant)
    if what != "replacecommit":
        archive_index(table, instant)
    if moved:
        refused(table, TOOK)
    else:
        check(table)


@pytest.mark.parametrize("archived", [False, True], ids=["active", "archived"])
def test_what_was_cleaned_of_the_index_cannot_be_told(archived: bool) -> None:
    table, instant = dropped(moved=True)
    refused(table, TOOK)
    compact_index(table, times=2)
    clean_index(table, until=instant)
    if archived:
        archive(table, instant)
        archive_index(table, instant)
    refused(table, UNTOLD)


def test_a_log_file_between_that_is_gone_makes_it_untold() -> None:
    """A clean deletes a slice's files in any order."""
    table = IndexedTable()
    table.commit({"k": 1, "a": 1, "b": 3})
    before = table.commit({"k": 2})
    instant = replace(table, [1], ["k", "a"])
    refused(table, TOOK)
    for each in list(table.storage.list(RECORD_INDEX_FOLDER)):
        if before in each.name:
            table.storage.delete(each.path)
    refused(table, f"{instant} .*{UNTOLD}")


def test_a_base_file_of_which_nobody_knows_when_it_completed_makes_it_untold() -> None:
    """The archive of the metadata table is gone; its bootstrap is on the active timeline still."""
    table, instant = dropped(moved=True)
    folder = f"{METADATA_TABLE_ROOT}/timeline"
    for each in list(table.storage.list(folder)):
        if each.name[:1].isdigit() and each.name[:5] > "00000" and each.name[:17] < instant:
            table.storage.delete(f"{folder}/{each.name}")
    refused(table, UNTOLD)


def test_an_instant_of_the_index_that_nobody_has_makes_it_untold() -> None:
    table, instant = dropped(moved=True)
    archive_index(table, instant, readable=False)
    refused(table, UNTOLD)


def kept(table: IndexedTable, term: Term | None = None) -> frozenset[str]:
    """Checks, and keeps what was found right."""
    entries = ReplacedEntries(table.storage)
    entries.check(load_timeline(table.storage), load_timeline(table.storage, METADATA_TABLE_ROOT))
    entries.keep(term or begin_term(table.storage, next(NUMBERS)))
    return believed(table)


def believed(table: IndexedTable) -> frozenset[str]:
    return checked_replacecommits(table.storage, names(table))


def names(table: IndexedTable) -> frozenset[str]:
    return ReplacedRows(table.storage).names(load_timeline(table.storage))


def name_of(table: IndexedTable, instant: str) -> str:
    found = load_timeline(table.storage).find(instant)
    assert found is not None
    return found.file_name


def test_what_was_found_right_is_kept_and_not_asked_for_again() -> None:
    table, instant = dropped(moved=False)
    first = {name_of(table, instant)}
    assert kept(table) == first
    compact_index(table, times=2)
    clean_index(table, until=instant)
    archive(table, instant)
    archive_index(table, instant)
    check(table)

    # The next one is judged by itself.
    table.commit({"m": 4})
    table.commit({"m": 5})
    replace(table, [4], ["m"])
    refused(table, "took the index entries of 1 keys .*'m'")
    with pytest.raises(UnsupportedTableError):
        kept(table)
    assert believed(table) == first


def test_one_that_completed_with_an_earlier_time_afterwards_is_judged() -> None:
    """Another engine's clock is behind: it was not there when others were found right."""
    table, instant = dropped(moved=True)
    path = f".hoodie/timeline/{name_of(table, instant)}"
    content = table.storage.read(path)
    table.storage.delete(path)
    replace(table, [9], [])
    assert len(kept(table)) == 1
    table.storage.create(path, content)
    refused(table, TOOK)


def test_nothing_is_kept_behind_the_term() -> None:
    table, _ = dropped(moved=False)
    term = begin_term(table.storage, 1)
    begin_term(table.storage, 2)
    with pytest.raises(FencedOutError):
        kept(table, term)
    assert not table.storage.exists(CHECKED_INDEX)


def test_a_table_whose_partitions_nobody_replaced_gets_no_document() -> None:
    table = IndexedTable()
    table.commit({"k": 1})
    replace(table, [1], [], "CLUSTER")
    assert kept(table) == frozenset()
    assert not table.storage.exists(CHECKED_INDEX)


def test_what_another_look_kept_stays_and_a_damaged_document_is_written_anew() -> None:
    table, instant = dropped(moved=False)
    other = replace(table, [9], [])
    keep_checked(table.storage, {name_of(table, other)}, names(table))
    both = {name_of(table, instant), name_of(table, other)}
    assert kept(table) == both
    table.storage.replace(CHECKED_INDEX, b"{")
    assert believed(table) == frozenset()
    assert kept(table) == both


def test_somebody_compared_rows_and_index_since() -> None:
    table, instant = dropped(moved=True)
    clean_index(table, until=instant)
    refused(table, UNTOLD)
    keep_checked(table.storage, {name_of(table, instant)}, names(table))
    check(table)


@pytest.mark.parametrize("gone", [False, True], ids=["what tells it is there", "it is cleaned"])
def test_what_was_kept_holds_as_long_as_all_of_it_is_there(gone: bool) -> None:
    """Group 1 was dropped, and took the entry of a row in group 2, which is hidden until a restore."""
    table = IndexedTable()
    table.commit({"k": 1, "a": 1})
    table.commit({"k": 2})
    hiding = hidden(table)
    both = kept(table)
    assert len(both) == 2
    if gone:
        clean_index(table, until=hiding)
    check(table)
    take_back(table, hiding)
    assert believed(table) == frozenset()
    refused(table, UNTOLD if gone else TOOK)

    # Somebody compared all since: what was taken back is forgotten.
    left = names(table)
    assert left < both
    keep_checked(table.storage, left, left)
    assert believed(table) == left
    check(table)


def test_what_is_not_kept_yet_is_judged_again_where_one_was_taken_back() -> None:
    table, _ = dropped(moved=False)
    other = replace(table, [9], [])
    entries = ReplacedEntries(table.storage)
    look(entries, table)
    take_back(table, other)
    look(entries, table)
    entries.keep(begin_term(table.storage, next(NUMBERS)))
    assert believed(table) == names(table)


@pytest.mark.parametrize("archived", [False, True], ids=["active", "archived"])
@pytest.mark.parametrize("partition", ["record_index", "column_stats", ""])
def test_only_the_record_index_that_was_built_anew_is_right(partition: str, archived: bool) -> None:
    """Hudi's bootstrap of an empty index names no partition."""
    table, instant = dropped(moved=True)
    clean_index(table, until=instant)
    stat = WriteStat(file_id="f", path=f"{partition}/f", partition_path=partition)
    stats = {partition: (stat,)} if partition else {}
    table.build_anew(encode_commit_metadata(CommitMetadata(write_stats=stats)))
    if archived:
        archive_index(table, instant)
    if partition == "column_stats":
        refused(table, UNTOLD)
    else:
        check(table)


def test_what_is_older_than_the_build_of_the_index_says_nothing_of_it() -> None:
    """Its files are gone, and nobody asks for them."""
    table = IndexedTable()
    old = table.commit({"k": 1})
    clean_index(table, until=old)
    for shard in range(table.shards):
        table.storage.create(
            f"{RECORD_INDEX_FOLDER}/.record-index-{shard:04d}-0_00000000000000001.log.1_0-0-0", b""
        )
    table.build_anew(encode_commit_metadata(CommitMetadata()))
    table.commit({"k": 1})
    replace(table, [1], ["k"])
    check(table)


def test_base_files_of_a_copy_on_write_table_name_rows_alone() -> None:
    table, instant = dropped(moved=True)
    clean_index(table, until=instant)
    properties = table.storage.read(PROPERTIES_PATH)
    table.storage.replace(PROPERTIES_PATH, properties.replace(b"MERGE_ON_READ", b"COPY_ON_WRITE"))
    check(table)


def test_where_nothing_was_replaced_since_the_newest_manifest_is_read_alone() -> None:
    """It is asked before every plan."""
    table, instant = dropped(moved=False)
    archive(table, instant)
    entries, read = ReplacedEntries(table.storage), table.storage.read
    lines = [load_timeline(table.storage, root) for root in (DATA_ROOT, METADATA_TABLE_ROOT)]
    entries.check(*lines)
    paths: list[str] = []

    def counting(path: str) -> bytes:
        paths.append(path)
        return read(path)

    lines = [load_timeline(table.storage, root) for root in (DATA_ROOT, METADATA_TABLE_ROOT)]
    for name in ("open_input", "read_range", "list", "names"):
        setattr(table.storage, name, None)
    table.storage.read = counting  # type: ignore[method-assign]
    entries.check(*lines)
    assert paths == [f".hoodie/timeline/history/{name}" for name in ("_version_", "manifest_1")]
