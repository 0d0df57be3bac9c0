"""Full verification of sound tables, and of tables damaged by hand: each damage is found and named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.table_files import existing_table, new_table, orders
from tests.unit.table_verification.damage import DAYS, Damage, changed_table, epoch_commit
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType, update_properties
from tidemark.hudi_format.table_keys import METADATA_PARTITIONS
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.hudi_format.timeline.service_records import RollbackPlan, encode_rollback_plan
from tidemark.table_verification.compare_all import KeysByShard
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import Verification, verify_table


@pytest.fixture(params=list(TableType), ids=lambda each: each.value)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    changed_table(path, request.param)
    return path


@pytest.fixture
def merge_on_read(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    writer = new_table(path)
    writer.commit(orders(*((f"k{n}", DAYS[n % 3], 10) for n in range(60))))
    writer.commit(orders(*((f"k{n}", DAYS[n % 3], 20) for n in range(9))))
    return path


def verified(path: Path) -> Verification:
    return verify_table(LocalStorage(path), lambda _: None)


def kinds(result: Verification) -> dict[Kind, int]:
    return dict(result.findings.counts)


def test_sound_table_agrees(table: Path):
    result = verified(table)
    assert kinds(result) == {}
    assert (result.rows, result.entries, result.partitions) == (59, 59, 3)
    assert result.agrees


def test_table_without_commits_agrees(tmp_path: Path):
    new_table(tmp_path / "table")
    assert verified(tmp_path / "table").agrees


def test_deleted_entry_is_a_row_without_entry(table: Path):
    Damage(table).index("k4", None)
    result = verified(table)
    assert kinds(result) == {Kind.ROW_WITHOUT_ENTRY: 1}
    assert result.findings.examples[Kind.ROW_WITHOUT_ENTRY][0].startswith(f"k4: in {DAYS[1]} ")


def test_extra_entry_is_an_entry_without_row(table: Path):
    damage = Damage(table)
    damage.index("nobody", damage.location_of("k4"))
    assert kinds(verified(table)) == {Kind.ENTRY_WITHOUT_ROW: 1}


def test_entry_of_a_deleted_key_is_found(table: Path):
    damage = Damage(table)
    damage.index("k59", damage.location_of("k4"))
    assert kinds(verified(table)) == {Kind.ENTRY_WITHOUT_ROW: 1}


def test_entry_with_another_file_group_is_found(table: Path):
    damage = Damage(table)
    damage.index("k4", damage.location_of("k3"))
    result = verified(table)
    assert kinds(result) == {Kind.ENTRY_ELSEWHERE: 1}
    assert "k4: the row is in 2026-01-02" in result.findings.examples[Kind.ENTRY_ELSEWHERE][0]


def test_entry_with_an_unknown_file_group_is_found(table: Path):
    damage = Damage(table)
    place = damage.location_of("k4")
    damage.index("k4", RecordLocation(place.partition_path, "00000000-0000-4000-8000-000000000000-0"))
    assert kinds(verified(table)) == {Kind.ENTRY_ELSEWHERE: 1}


def test_entry_in_the_wrong_shard_is_found(table: Path):
    damage = Damage(table)
    damage.index("k4", damage.location_of("k4"), shard=1 - damage.shard_of("k4"))
    assert kinds(verified(table)) == {Kind.ENTRY_IN_WRONG_SHARD: 1, Kind.ENTRY_WITHOUT_ROW: 1}


def test_key_that_is_inserted_into_a_second_partition_is_found_twice(table: Path):
    damage = Damage(table)
    damage.index("k4", None)
    # To the writer the key is new, so it inserts it on another day beside the row that is there.
    writer = existing_table(table)
    writer.commit(orders(("k4", DAYS[2], 30)))
    result = verified(table)
    assert kinds(result) == {Kind.KEY_TWICE: 1, Kind.ENTRY_ELSEWHERE: 1}
    (example,) = result.findings.examples[Kind.KEY_TWICE]
    assert example.startswith("k4: in ")
    assert f"{DAYS[1]} " in example
    assert f"{DAYS[2]} " in example


def test_missing_log_file_is_found(merge_on_read: Path):
    victim = Damage(merge_on_read).files(log=True)[0]
    (merge_on_read / victim).unlink()
    result = verified(merge_on_read)
    assert kinds(result) == {Kind.FILE_MISSING: 1}
    assert result.findings.examples[Kind.FILE_MISSING] == [victim]


def test_missing_base_file_is_found_with_the_rows_that_went_with_it(merge_on_read: Path):
    (merge_on_read / Damage(merge_on_read).files(log=False)[0]).unlink()
    found = kinds(verified(merge_on_read))
    assert found[Kind.FILE_MISSING] == 1
    # 20 keys lived there, three of them also in a log file.
    assert found[Kind.ENTRY_WITHOUT_ROW] == 17


def test_orphan_of_a_committed_instant_is_found(merge_on_read: Path):
    source = Damage(merge_on_read).files(log=False)[0]
    parsed = parse_data_file(source.rpartition("/")[2])
    assert parsed is not None
    orphan = source.replace(parsed.file_id, "00000000-0000-4000-8000-000000000000-0")
    (merge_on_read / orphan).write_bytes((merge_on_read / source).read_bytes())
    found = kinds(verified(merge_on_read))
    assert found[Kind.FILE_NOT_LISTED] == 1
    assert found[Kind.KEY_TWICE] == 20


def test_file_of_a_write_that_never_committed_is_ignored(merge_on_read: Path):
    source = Damage(merge_on_read).files(log=False)[0]
    parsed = parse_data_file(source.rpartition("/")[2])
    assert parsed is not None
    (merge_on_read / source.replace(parsed.instant, "20991231235959999")).write_bytes(b"partial")
    result = verified(merge_on_read)
    assert result.agrees
    assert result.ignored_files == 1


def test_cut_file_is_found_by_its_size_and_as_unreadable(merge_on_read: Path):
    victim = merge_on_read / Damage(merge_on_read).files(log=False)[0]
    victim.write_bytes(victim.read_bytes()[:-100])
    found = kinds(verified(merge_on_read))
    assert found[Kind.FILE_SIZE] == 1
    assert found[Kind.UNREADABLE] == 1


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([(1, (0, 5)), (2, (5, 9)), (3, (9, 9))], {}),
        ([(1, (0, 5)), (4, (7, 9))], {}),
        ([(1, (0, 5)), (2, (6, 9))], {Kind.OFFSETS_GAP: 2}),
        ([(1, (0, 5)), (2, (4, 9))], {Kind.OFFSETS_GAP: 2}),
        ([(1, (0, 5)), (3, (4, 9))], {Kind.OFFSETS_GAP: 2}),
        ([(2, (0, 5)), (2, (5, 9))], {Kind.EPOCH_ORDER: 1}),
        ([(7, (10, 15)), (8, (0, 4))], {}),
    ],
    ids=[
        "contiguous",
        "epoch without rows",
        "gap",
        "overlap",
        "overlap over a jump",
        "repeated",
        "new ledger",
    ],
)
def test_epochs_and_positions_are_checked(tmp_path: Path, commits, expected):
    new_table(tmp_path / "table")
    for epoch, source in commits:
        epoch_commit(tmp_path / "table", epoch, source)
    result = verified(tmp_path / "table")
    assert kinds(result) == expected
    assert result.commits.ours == len(commits)


def test_commit_that_is_gone_is_named_by_the_one_after_it(tmp_path: Path):
    path, previous = tmp_path / "table", ""
    new_table(path)
    instants = []
    for epoch, source in ((1, (0, 5)), (3, (6, 7)), (4, (7, 8)), (6, (9, 10))):
        instants.append(epoch_commit(path, epoch, source, previous=previous))
        previous = instants[-1]
    assert verified(path).agrees
    for root in (".hoodie", ".hoodie/metadata/.hoodie"):
        for file in (path / root / "timeline").glob(f"{instants[2]}*"):
            file.unlink()
    for file in (path / ".hoodie/metadata/files").glob(f"*_{instants[2]}.log*"):
        file.unlink()
    result = verified(path)
    assert kinds(result) == {Kind.COMMIT_GONE: 1}
    assert result.findings.examples[Kind.COMMIT_GONE] == [
        f"{instants[3]} (epoch 6) was committed after {instants[2]}, which is gone, "
        f"before it comes {instants[1]} (epoch 3)"
    ]


def test_commits_of_one_instant_that_differ_are_found(tmp_path: Path):
    new_table(tmp_path / "table")
    epoch_commit(tmp_path / "table", 1, (0, 5), index_says=2)
    result = verified(tmp_path / "table")
    assert kinds(result) == {Kind.COMMITS_DIFFER: 1}
    assert result.findings.examples[Kind.COMMITS_DIFFER][0].endswith(": tidemark.epoch")


def test_examples_are_few_and_all_are_counted(tmp_path: Path):
    writer = new_table(tmp_path / "table")
    writer.commit(orders(*((f"k{n}", DAYS[0], 10) for n in range(50))))
    (tmp_path / "table" / Damage(tmp_path / "table").files(log=False)[0]).unlink()
    result = verified(tmp_path / "table")
    assert kinds(result)[Kind.ENTRY_WITHOUT_ROW] == 50
    assert len(result.findings.examples[Kind.ENTRY_WITHOUT_ROW]) == 20


def test_spilled_keys_come_back_in_their_shards(tmp_path: Path):
    keys = pa.chunked_array([pa.array([f"key-{n}" for n in range(1_000)])])
    kept = KeysByShard(4, tmp_path, pending_bytes_max=5_000)
    in_memory = KeysByShard(4, tmp_path / "unused")
    for number in range(5):
        part = keys.slice(number * 200, 200)
        kept.add(part, number)
        in_memory.add(part, number)
    assert list(tmp_path.glob("shard-*"))
    for shard in range(4):
        rows = [
            each.sort_by("key") for each in (kept.rows_of(ShardId(shard)), in_memory.rows_of(ShardId(shard)))
        ]
        assert rows[0].equals(rows[1])
        assert rows[0].num_rows > 200
        expected = record_index_shard(rows[0]["key"].combine_chunks().cast(pa.string()), 4)
        assert set(expected.tolist()) == {shard}


def test_missing_index_log_is_named_with_its_commit(table: Path):
    damage = Damage(table)
    instant = str(damage.snapshot.data_timeline.completed()[-1].requested)
    gone = damage.remove(damage.index_logs(instant)[0])
    result = verified(table)
    assert result.findings.examples[Kind.COMMITTED_FILE_GONE] == [f"{gone}: written by commit {instant}"]


def test_log_that_neither_storage_nor_metadata_table_has_is_named_by_its_commit(merge_on_read: Path):
    damage = Damage(merge_on_read)
    victim = damage.files(log=True)[0]
    damage.files_say(victim, None)
    damage.remove(victim)
    result = verified(merge_on_read)
    assert kinds(result) == {Kind.COMMITTED_FILE_GONE: 1}
    assert result.findings.examples[Kind.COMMITTED_FILE_GONE][0].startswith(f"{victim}: written by commit ")


def test_entry_of_the_files_partition_too_many_or_missing_is_found(table: Path):
    damage = Damage(table)
    victim = damage.files(log=False)[0]
    ghost = victim.replace(victim.rpartition("/")[2][:8], "00000000")
    damage.files_say(ghost, 100)
    damage.files_say(victim, None)
    result = verified(table)
    assert kinds(result) == {Kind.FILE_MISSING: 1, Kind.FILE_NOT_LISTED: 1}
    assert result.findings.examples == {Kind.FILE_MISSING: [ghost], Kind.FILE_NOT_LISTED: [victim]}


def test_orphan_of_an_instant_that_no_timeline_has_is_found(table: Path):
    damage = Damage(table)
    source = damage.files(log=False)[0]
    instant = parse_data_file(source.rpartition("/")[2]).instant
    stray = f"{int(instant) + 1}"
    orphan = damage.copy_as(source, instant, stray)
    log = damage.index_logs(instant)[0]
    index_orphan = damage.copy_as(log, instant, stray)
    result = verified(table)
    assert kinds(result) == {Kind.ORPHAN_FILE: 2}
    found = result.findings.examples[Kind.ORPHAN_FILE]
    assert found[0] == f"{orphan}: the timeline has no instant {stray}"
    assert found[1] == f"{index_orphan}: no timeline has {stray}"


def test_metadata_commit_without_data_instant_is_found(table: Path):
    damage = Damage(table)
    instant = damage.index("k4", damage.location_of("k4"))
    damage.index("k5", damage.location_of("k5"))
    for info in damage.storage.list(".hoodie/timeline"):
        if info.name.startswith(instant):
            damage.remove(info.path)
    result = verified(table)
    assert result.findings.counts[Kind.METADATA_COMMIT_ALONE] == 1
    assert f"the table has no instant {instant}" in result.findings.examples[Kind.METADATA_COMMIT_ALONE][0]


def test_metadata_commit_of_an_instant_that_a_rollback_takes_back_is_no_difference(table: Path):
    """Hudi may leave it there, and may die before its rollback is completed."""
    damage = Damage(table)
    instant = damage.index("k4", damage.location_of("k4"))
    action = load_timeline(damage.storage).completed()[-1].action.value
    by, rollback = Unfenced(damage.storage), damage.times.next()
    plan = encode_rollback_plan(RollbackPlan(instant_to_rollback=instant, action=action, requests=()))
    create_inflight(by, create_requested(by, rollback, Action.ROLLBACK, plan))
    for info in damage.storage.list(".hoodie/timeline"):
        if info.name.startswith(instant):
            damage.remove(info.path)
    assert kinds(verified(table)) == {}


def test_data_commit_without_metadata_commit_is_found(table: Path):
    damage = Damage(table)
    instant = damage.index("k4", damage.location_of("k4"))
    for info in damage.storage.list(".hoodie/metadata/.hoodie/timeline"):
        if info.name.startswith(instant):
            damage.remove(info.path)
    result = verified(table)
    assert result.findings.examples[Kind.COMMITS_DIFFER][0].startswith(
        f"{instant}: the metadata table has no"
    )


@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_completed_instant_without_its_earlier_files_is_found(table: Path, state: str):
    damage = Damage(table)
    instant = damage.snapshot.data_timeline.completed()[0].requested
    (gone,) = [
        info.name
        for info in damage.storage.list(".hoodie/timeline")
        if info.name.startswith(instant) and info.name.endswith(f".{state}")
    ]
    damage.remove(f".hoodie/timeline/{gone}")
    result = verified(table)
    assert kinds(result) == {Kind.INSTANT_FILES: 1}
    assert result.findings.examples[Kind.INSTANT_FILES][0].endswith(f": there is no {gone}")


def test_completion_times_out_of_order_are_found(tmp_path: Path):
    path = tmp_path / "table"
    writer = new_table(path)
    writer.commit(orders(("k1", DAYS[0], 10)))
    timeline = path / ".hoodie" / "timeline"
    (completed,) = timeline.glob("*_*.deltacommit")
    requested, _, rest = completed.name.partition("_")
    completed.rename(timeline / f"{requested}_{requested}.{rest.partition('.')[2]}")
    result = verified(path)
    assert kinds(result)[Kind.COMPLETION_ORDER] == 2, "before it was requested, and before the index"
    assert "before it was requested" in result.findings.examples[Kind.COMPLETION_ORDER][0]


def test_unreadable_commit_is_found(table: Path):
    commit = Damage(table).snapshot.data_timeline.completed()[0].file_name
    (table / ".hoodie" / "timeline" / commit).write_bytes(b"not Avro")
    assert kinds(verified(table)) == {Kind.UNREADABLE: 1}


def test_table_whose_index_another_writer_deleted_is_refused_by_name(table: Path):
    storage = LocalStorage(table)
    update_properties(storage, {METADATA_PARTITIONS: "files"})
    storage.delete_tree(RECORD_INDEX_FOLDER)
    with pytest.raises(UnsupportedTableError, match=r"no record level index.*table describe"):
        verify_table(storage, lambda _: None)
