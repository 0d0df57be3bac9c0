"""An epoch, or the log files of the index, that are larger than what one write of RocksDB may take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import pytest

from tests.unit.index_assigner.index_world import Assigner, Change, DataTable, promoted
from tidemark.hudi_format.errors import ChangesGoneError
from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard_changes import ChangeStream
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.key_stretches import stretches
from tidemark.index_assigner.index import promotion, shards
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.shard_records import read_record

LIMITS = IndexLimits(memory_bytes=1 << 20, disk_bytes=1 << 30)
KEYS_OF_8_KIB = {f"{number:08d}" * 1_024: (1 + number % 3, number) for number in range(500)}
FIRST = {f"k{number:02d}": (1, 1) for number in range(40)}
AGAIN = {
    **{key: Change(2, 2, updated=True) for key in list(FIRST)[:20]},
    "k30": Change(None, 3, deleted_from=1),
    **{f"new{number}": Change(3, 4) for number in range(10)},
}


class KilledError(Exception):
    """The process ends here."""


class Watched:
    """RocksDB itself, which notes the size of each batch, and can be killed before one of them."""

    def __init__(self, assigner: Assigner) -> None:
        self.sizes: list[int] = []
        self.kill_at: int | None = None
        self._database = assigner.rocks._db
        assigner.rocks._db = cast(Any, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, batch: Any) -> None:
        if self.kill_at == len(self.sizes):
            raise KilledError
        self.sizes.append(batch.size_in_bytes())
        self._database.write(batch)


def groups(rows: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    return {key: group for key, (group, _) in rows.items()}


def answers(assigner: Assigner, table: DataTable) -> None:
    """It finds each key of the table where it is, and no other."""
    asked = {*table.rows, *AGAIN, *FIRST}
    found = {key: each.group for key, each in assigner.ask(sorted(asked)).items()}
    assert {key: group for key, group in found.items() if group is not None} == groups(table.rows)


def test_an_epoch_of_large_keys_is_promoted_in_batches_of_some_mib(assigners) -> None:
    """500 keys of 8 KiB in one shard: they were one batch of 4 MiB, where a write buffer has 1 MiB."""
    table = DataTable(shards=1)
    table.commit_rows(FIRST)
    one = assigners(table, limits=LIMITS).open(table.known())
    watched = Watched(one)
    changes = {key: Change(group, ordering) for key, (group, ordering) in KEYS_OF_8_KIB.items()}
    completion = promoted(one, table, changes, 5)
    assert max(watched.sizes) < 3.5 * (1 << 20)
    record = read_record(one.rocks, ShardId(0))
    assert record is not None
    assert record.stamp == completion
    answers(one, table)


def test_log_files_with_large_keys_are_taken_over_some_mib_at_a_time(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_KEY_BYTES_AT_ONCE", 1 << 20)
    table = DataTable(shards=1)
    table.commit_rows(KEYS_OF_8_KIB)
    one = assigners(table, limits=LIMITS)
    watched = Watched(one)
    one.open(table.known())
    assert sum(watched.sizes) > 500 << 13
    # A batch that is not full yet, and the next keys.
    assert max(watched.sizes) < 2.1 * (1 << 20)
    answers(one, table)


@pytest.mark.parametrize("kill_at", range(10))
def test_killed_between_two_batches_of_log_files_the_shard_is_filled_anew(
    assigners, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    monkeypatch.setattr(RocksTier, "batch_bytes", 1)
    table = DataTable(shards=1)
    table.commit_rows(FIRST)
    table.commit_rows({"k00": (2, 2), "k01": (3, 2)}, {"k02": 2, "k03": 2})
    table.commit_rows({"k01": (1, 3), "new1": (3, 3)}, {"k00": 3})
    one = assigners(table)
    watched = Watched(one)
    watched.kill_at = kill_at
    with pytest.raises(KilledError) if kill_at < 9 else contextlib.nullcontext():
        one.open(table.known())
    assert (read_record(one.rocks, ShardId(0)) is None) is (kill_at < 9)
    one.close()
    answers(assigners(table).open(table.known()), table)


def test_of_a_key_in_several_log_files_the_newest_place_is_taken_over(assigners) -> None:
    table = DataTable(shards=1)
    table.commit_rows(FIRST)
    table.commit_rows({"k00": (2, 2), "k01": (3, 2)}, {"k02": 2, "k03": 2})
    table.commit_rows({"k01": (1, 3), "k02": (3, 3)}, {"k00": 3})
    answers(assigners(table).open(table.known()), table)


@pytest.mark.parametrize("kill_at", range(6))
def test_killed_between_two_batches_of_an_epoch_the_shard_is_filled_anew(
    assigners, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    monkeypatch.setattr(RocksTier, "batch_bytes", 100)
    monkeypatch.setattr(promotion, "_AT_ONCE", 8)
    table = DataTable(shards=1)
    table.commit_rows(FIRST)
    one = assigners(table).open(table.known())
    watched = Watched(one)
    watched.kill_at = kill_at
    with pytest.raises(KilledError):
        promoted(one, table, AGAIN, 5)
    # The first batch may be that of a new location, which is no part of the epoch.
    is_partly_written = len(watched.sizes) > 1
    assert (read_record(one.rocks, ShardId(0)) is None) is is_partly_written
    one.close()
    answers(assigners(table).open(table.known()), table)


def behind(assigners) -> DataTable:
    """A table, and an assigner that left before its last three commits."""
    table = DataTable(shards=1)
    table.commit_rows(FIRST)
    assigners(table).open(table.known()).close()
    table.commit_rows({"k00": (2, 2), "k01": (3, 2)}, {"k02": 2, "k03": 2})
    table.commit_rows({"k01": (1, 3), "new1": (3, 3)}, {"k00": 3})
    table.commit_rows({"k02": (1, 4), "new2": (3, 4)}, {"new1": 4})
    return table


@pytest.mark.parametrize("kill_at", range(8))
def test_killed_between_two_batches_of_a_catch_up_the_shard_is_filled_anew(
    assigners, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    monkeypatch.setattr(RocksTier, "batch_bytes", 1)
    table = behind(assigners)
    one = assigners(table)
    watched = Watched(one)
    watched.kill_at = kill_at
    with contextlib.suppress(KilledError):
        one.open(table.known())
    one.close()
    answers(assigners(table).open(table.known()), table)


@pytest.mark.parametrize("gone_at", range(6))
def test_log_files_that_go_during_a_catch_up_lead_to_a_shard_filled_anew(
    assigners, monkeypatch: pytest.MonkeyPatch, gone_at: int
) -> None:
    monkeypatch.setattr(RocksTier, "batch_bytes", 1)
    table = behind(assigners)
    read, parts_read = ChangeStream.__iter__, list[object]()

    def cut(stream: ChangeStream) -> Iterator[tuple[str, RecordIndexEntries]]:
        for part in read(stream):
            if gone_at == len(parts_read):
                raise ChangesGoneError("a log file went")
            parts_read.append(part)
            yield part

    monkeypatch.setattr(ChangeStream, "__iter__", cut)
    answers(assigners(table).open(table.known()), table)
    assert len(parts_read) == gone_at


def test_an_epoch_that_was_killed_partly_written_and_then_undone_leaves_nothing(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RocksTier, "batch_bytes", 100)
    monkeypatch.setattr(promotion, "_AT_ONCE", 8)
    table = DataTable(shards=1)
    table.commit_rows(FIRST)
    one = assigners(table).open(table.known())
    watched = Watched(one)
    watched.kill_at = 3
    one.stage(AGAIN)
    one.index.counted(range(2), 5)
    with pytest.raises(KilledError):
        one.index.promote(5, "9" * 17, 1)
    one.close()
    answers(assigners(table).open(table.known()), table)


def test_keys_are_divided_by_number_and_by_bytes() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        widths = random.integers(0, 12, random.integers(0, 40))
        parts = list(stretches(widths, 5, 20))
        assert [at for first, end in parts for at in range(first, end)] == list(range(len(widths)))
        for first, end in parts:
            size = widths[first:end].sum()
            assert end - first <= 5
            assert size <= 20 or end - first == 1
            # No part could take the next key as well.
            fits = end < len(widths) and end - first < 5 and size + widths[end] <= 20
            assert not fits
