"""The changes of a shard after a time: also of archived commits, and None where a log file is gone."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable, entries, plain, write_archive
from tidemark.hudi_format.commit.instants import complete, instant_path
from tidemark.hudi_format.errors import ChangesGoneError
from tidemark.hudi_format.metadata_table import write_record_index_log
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.shard_changes import BEGINNING
from tidemark.hudi_format.model import BOOTSTRAP_INSTANT_PREFIX, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
    group_stats,
)


def completion_of(table: IndexedTable, instant: str) -> str:
    completion = table.snapshot().data_timeline.completion_time(instant)
    assert completion is not None
    return completion


def changes(
    table: IndexedTable, completion: str, shard: int = 0
) -> list[tuple[str, dict[str, int | None]]] | None:
    """Of an instant with several log blocks what they say together."""
    found = table.snapshot().shard(ShardId(shard)).changes_after(completion)
    if found is None:
        return None
    together: dict[str, dict[str, int | None]] = {}
    for instant, part in found:
        together.setdefault(instant, {}).update(plain(part))
    return list(together.items())


def test_changes_after_a_completion_time_are_the_later_commits_in_order() -> None:
    table = IndexedTable(shards=1)
    first = table.commit({"a": 1, "b": 1})
    second = table.commit({"a": 2})
    third = table.commit({"b": None, "c": 1})
    assert changes(table, BEGINNING) == [
        (first, {"a": 1, "b": 1}),
        (second, {"a": 2}),
        (third, {"b": None, "c": 1}),
    ]
    assert changes(table, completion_of(table, first)) == [(second, {"a": 2}), (third, {"b": None, "c": 1})]
    assert changes(table, completion_of(table, third)) == []


def test_changes_of_instants_that_did_not_touch_the_shard_are_left_out() -> None:
    table = IndexedTable(shards=2)
    keys = {table.shard_of(f"k{n}"): f"k{n}" for n in range(20)}
    table.commit({keys[0]: 1})
    second = table.commit({keys[1]: 1})
    assert changes(table, BEGINNING, shard=1) == [(second, {keys[1]: 1})]


def test_changes_survive_a_compaction_as_long_as_the_log_files_are_there() -> None:
    table = IndexedTable(shards=1)
    first = table.commit({"a": 1})
    second = table.commit({"b": 1})
    table.finish_compaction(table.schedule_compaction(), dict(table.live))
    third = table.commit({"c": 1})
    after_first = completion_of(table, first)
    assert changes(table, after_first) == [(second, {"b": 1}), (third, {"c": 1})]
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if second in info.name:
            table.storage.delete(info.path)
    assert changes(table, after_first) is None
    assert changes(table, completion_of(table, second)) == [(third, {"c": 1})]


def test_log_files_that_go_while_changes_are_read_are_an_error_and_no_shorter_list() -> None:
    table = IndexedTable(shards=1)
    table.commit({"a": 1})
    second = table.commit({"b": 1})
    found = table.snapshot().shard(ShardId(0)).changes_after(BEGINNING)
    assert found is not None
    read = iter(found)
    next(read)
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if second in info.name:
            table.storage.delete(info.path)
    with pytest.raises(ChangesGoneError):
        next(read)


def test_one_part_of_the_changes_is_in_memory_at_a_time() -> None:
    table, commits, keys = IndexedTable(shards=1), 12, 3_000
    for commit in range(commits):
        table.commit({f"key-{commit:03}-{number:06}": 1 for number in range(keys)})
    found = table.snapshot().shard(ShardId(0)).changes_after(BEGINNING)
    assert found is not None
    before, most, largest = pa.total_allocated_bytes(), 0, 0
    for _, part in found:
        most = max(most, pa.total_allocated_bytes() - before)
        largest = max(largest, part.keys.nbytes)
    assert largest >= keys * len("key-000-000000")
    # The part before it, this one, and what it is decoded from; all parts together are twelve.
    assert most < 6 * largest


def test_changes_after_a_time_that_no_instant_has_are_unknown() -> None:
    table = IndexedTable(shards=1)
    first = table.commit({"a": 1})
    table.commit({"b": 1})
    after = completion_of(table, first)
    for info in table.storage.list(".hoodie/timeline"):
        if info.name.startswith(first):
            table.storage.delete(info.path)
    assert changes(table, after) is None


def archive(table: IndexedTable, *instants: str, root: str = DATA_ROOT) -> None:
    """Moves these instants to the archive, which has no other."""
    rows = []
    for each in load_timeline(table.storage, root).completed():
        if each.requested in instants:
            content = table.storage.read(instant_path(each, root))
            rows.append((each.requested, str(each.completion), each.action.completed_word, content))
    write_archive(table.storage, rows, root)
    for info in table.storage.list(f"{root}/timeline"):
        if info.name.startswith(instants):
            table.storage.delete(info.path)


def test_changes_of_archived_commits_are_read_from_their_log_files() -> None:
    """Who was away for longer than the active timeline goes back catches up, as long as files are there."""
    table = IndexedTable(shards=1)
    first = table.commit({"a": 1, "b": 1})
    second = table.commit({"a": None})
    third = table.commit({"c": 1})
    after, newest_archived = completion_of(table, first), completion_of(table, second)
    newest = completion_of(table, third)
    archive(table, first, second)
    expected = [(second, {"a": None}), (third, {"c": 1})]
    assert changes(table, after) == expected
    archive(table, first, second, root=METADATA_TABLE_ROOT)
    assert changes(table, after) == expected
    assert changes(table, expected[0][0] + "9") is None, "a time that no instant has"
    assert changes(table, newest_archived) == expected[1:], "all archived ones are seen"
    assert changes(table, newest) == []
    assert changes(table, BEGINNING) is None, "nobody keeps all log files since the first commit"
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if second in info.name:
            table.storage.delete(info.path)
    assert changes(table, after) is None, "who goes on now would keep a row that was deleted"


@pytest.mark.parametrize("moved", [False, True])
def test_a_shard_that_an_archived_commit_did_not_touch_lacks_no_log_file_of_it(moved: bool) -> None:
    table = IndexedTable(shards=2)
    keys = {table.shard_of(f"k{n}"): f"k{n}" for n in range(20)}
    first = table.commit({keys[0]: 1, keys[1]: 1})
    second = table.commit({keys[0]: 2})
    third = table.commit({keys[1]: 2})
    after = completion_of(table, first)
    archive(table, first, second)
    if moved:
        archive(table, first, second, root=METADATA_TABLE_ROOT)
    assert changes(table, after, shard=1) == [(third, {keys[1]: 2})]


def test_an_archived_commit_of_which_no_archive_tells_the_files_is_unknown_to_shards_without_its_log() -> (
    None
):
    table = IndexedTable(shards=2)
    keys = {table.shard_of(f"k{n}"): f"k{n}" for n in range(20)}
    first = table.commit({keys[0]: 1, keys[1]: 1})
    second = table.commit({keys[0]: 2})
    third = table.commit({keys[0]: 3})
    after = completion_of(table, first)
    archive(table, first, second)
    archive(table, first, root=METADATA_TABLE_ROOT)
    for info in table.storage.list(f"{METADATA_TABLE_ROOT}/timeline"):
        if info.name.startswith(second):
            table.storage.delete(info.path)
    assert changes(table, after, shard=0) == [(second, {keys[0]: 2}), (third, {keys[0]: 3})]
    assert changes(table, after, shard=1) is None


def test_a_commit_that_neither_timeline_nor_archive_knows_makes_later_changes_unknown() -> None:
    """It counts, since it is older than the timeline's start, and nobody can tell when it completed."""
    table = IndexedTable(shards=1)
    first = table.commit({"a": 1})
    second = table.commit({"a": 2})
    table.commit({"b": 1})
    after = completion_of(table, first)
    archive(table, first)
    for root in (DATA_ROOT, METADATA_TABLE_ROOT):
        for info in table.storage.list(f"{root}/timeline"):
            if info.name.startswith((BOOTSTRAP_INSTANT_PREFIX, first, second)):
                table.storage.delete(info.path)
    assert table.index_content() == {"a": 2, "b": 1}
    assert changes(table, after) is None


def test_another_engines_commit_of_which_a_clean_took_one_of_two_log_files_is_unknown() -> None:
    table = IndexedTable(shards=1)
    first = table.commit({"a": 1})
    instant, data = table.begin({"a": 2, "b": 1})
    after = completion_of(table, first)
    [log] = [info for info in table.storage.list(RECORD_INDEX_FOLDER) if instant in info.name]
    found = load_timeline(table.storage, METADATA_TABLE_ROOT).find(instant)
    assert found is not None
    path = instant_path(found, METADATA_TABLE_ROOT)
    names = [log.name.replace("0-0-0", "0-7-3"), log.name.replace("0-0-0", "0-7-3").replace(".1_", ".2_")]
    whole = decode_commit_metadata(table.storage.read(path), path).stats()
    stats = [
        replace(stat, path=f"record_index/{name}", log_files=(name,)) for stat in whole for name in names
    ]
    metadata = CommitMetadata(write_stats=group_stats([s for s in stats if "record" in s.file_id]))
    table.storage.replace(path, encode_commit_metadata(metadata))
    for name, part in zip(names, ({"a": 2}, {"b": 1}), strict=True):
        log_bytes = write_record_index_log(entries(part), instant)
        table.storage.create(f"{RECORD_INDEX_FOLDER}/{name}", log_bytes)
    table.storage.delete(log.path)
    complete(Unfenced(table.storage), data, table.times.next(), encode_commit_metadata(CommitMetadata()))
    assert changes(table, after) == [(instant, {"a": 2, "b": 1})]
    table.storage.delete(f"{RECORD_INDEX_FOLDER}/{names[0]}")
    assert changes(table, after) is None
