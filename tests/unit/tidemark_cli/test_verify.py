"""`tidemark verify` on sound tables, and on tables damaged by hand: each damage is found and named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hudi_format.commit.instants import complete, create_inflight, create_requested
from hudi_format.file_group.names import LogFileName, parse_data_file
from hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
    record_index_log,
)
from hudi_format.metadata_table.record_index import RecordIndexEntries, write_record_index_log
from hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from hudi_format.model import InstantGenerator, RecordLocation
from hudi_format.record_index_hash import record_index_shard
from hudi_format.storage.local import LocalStorage
from hudi_format.table_config import TableType
from hudi_format.timeline import Action, load_timeline
from hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from stream_runtime.clock import SystemClock
from tests.unit.tidemark_cli.table_files import existing_table, new_table, orders, write_config
from tidemark_cli.main import main
from tidemark_cli.verify.findings import Kind
from tidemark_cli.verify.keys_by_shard import KeysByShard
from tidemark_cli.verify.verify import Verification, verify_table

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")


@pytest.fixture(params=list(TableType), ids=lambda each: each.value)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """60 keys on three days; then updates, a move and a delete."""
    path = tmp_path / "table"
    writer = new_table(path, request.param)
    writer.commit(orders(*((f"k{n}", DAYS[n % 3], 10) for n in range(60))))
    writer.commit(
        orders(*((f"k{n}", DAYS[n % 3], 20) for n in range(0, 30, 2)), ("k1", DAYS[2], 20)), [("k59", 20)]
    )
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


class Damage:
    """A metadata commit of ours that says what is not so; the data commit beside it is empty."""

    def __init__(self, path: Path) -> None:
        self.storage = LocalStorage(path)
        self.snapshot = MetadataTableSnapshot.load(self.storage)
        self.times = InstantGenerator(SystemClock())
        self.times.observe(self.snapshot.data_timeline.times() + self.snapshot.metadata_timeline.times())

    def shard_of(self, key: str) -> int:
        return int(record_index_shard(pa.array([key]), self.snapshot.num_shards)[0])

    def location_of(self, key: str) -> RecordLocation:
        found = self.snapshot.shard(self.shard_of(key)).lookup(pa.array([key]))
        return found.locations[int(found.location_ids[0])]

    def index(self, key: str, location: RecordLocation | None, shard: int | None = None) -> None:
        """Commits one index entry, a delete where the location is None."""
        locations = [] if location is None else [location]
        entries = RecordIndexEntries(
            pa.array([key]), np.array([len(locations) - 1], np.int32), locations, np.zeros(1, np.int64)
        )
        shard = self.shard_of(key) if shard is None else shard
        instant = self.times.next()
        data = create_inflight(
            self.storage,
            create_requested(self.storage, instant, Action.DELTA_COMMIT),
            encode_commit_metadata(CommitMetadata()),
        )
        inflight = begin_delta_commit(self.storage, instant)
        content = write_record_index_log(entries, instant)
        log = record_index_log(instant, shard, len(content), len(locations), 1 - len(locations))
        publish_log(self.storage, log, content)
        files = publish_files_log(self.storage, instant, [])
        complete_delta_commit(
            self.storage, inflight, self.times.next(), delta_commit_metadata(instant, [log, files])
        )
        complete(self.storage, data, self.times.next(), encode_commit_metadata(CommitMetadata()))

    def files(self, log: bool) -> list[str]:
        """Data files of the table, log files or base files."""
        return [
            info.path
            for day in DAYS
            for info in self.storage.list(day)
            if (parsed := parse_data_file(info.name)) and isinstance(parsed, LogFileName) is log
        ]


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
    assert result.findings.examples[Kind.KEY_TWICE] == ["k4"]


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


def epoch_commit(path: Path, epoch: int, source: tuple[int, int], index_says: int | None = None) -> None:
    """An empty commit with the metadata that an epoch carries; the two commits differ with `index_says`."""

    def extra(number: int) -> dict[str, str]:
        return {
            "tidemark.epoch": str(number),
            "tidemark.keyed_offsets": json.dumps({"orders.keyed": {"0": source}}),
            "tidemark.source_offsets": json.dumps({"orders-in": {"0": source}}),
            "tidemark.records": "{}",
        }

    storage, times = LocalStorage(path), InstantGenerator(SystemClock())
    times.observe(load_timeline(storage).times())
    instant = times.next()
    requested = create_requested(storage, instant, Action.DELTA_COMMIT)
    data = create_inflight(storage, requested, encode_commit_metadata(CommitMetadata()))
    inflight = begin_delta_commit(storage, instant)
    files = publish_files_log(storage, instant, [])
    metadata = delta_commit_metadata(instant, [files], extra(index_says or epoch))
    complete_delta_commit(storage, inflight, times.next(), metadata)
    content = CommitMetadata(extra_metadata=extra(epoch))
    complete(storage, data, times.next(), encode_commit_metadata(content))


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
        rows = [each.sort_by("key") for each in (kept.rows_of(shard), in_memory.rows_of(shard))]
        assert rows[0].equals(rows[1])
        assert rows[0].num_rows > 200
        expected = record_index_shard(rows[0]["key"].combine_chunks().cast(pa.string()), 4)
        assert set(expected.tolist()) == {shard}


def test_command_prints_json_and_exits_by_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write_config(tmp_path)
    new_table(tmp_path / "table").commit(orders(("k1", DAYS[0], 10)))
    assert main(["verify", "-c", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["agrees"], document["rows"], document["differences"]) == (True, 1, {})
    Damage(tmp_path / "table").index("k1", None)
    assert main(["verify", "-c", str(file), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["differences"]["row-without-entry"]["count"] == 1
    assert main(["verify", "-c", str(file)]) == 1
    assert "DOES NOT AGREE: 1 differences" in capsys.readouterr().out


def test_no_table_says_where_it_looked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", "-c", str(write_config(tmp_path))]) == 1
    assert f"{tmp_path / 'table'} is no Hudi table" in capsys.readouterr().err
