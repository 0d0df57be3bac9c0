"""Entries of secondary indexes: how tasks pack them, and what is left of all of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.unit.stream_writer.test_stats_job import FACTS
from tidemark.commit.v1 import commit_pb2
from tidemark.epoch_protocol.kept_indexes import KeptSecondary
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.value_changes import RowsChanged
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.stream_writer.epoch_tasks import (
    EpochTask,
    SecondaryTask,
    decode_task,
    index_tasks,
    task_planner,
    touched_groups,
)
from tidemark.stream_writer.packed_rows import unpacked
from tidemark.stream_writer.secondary_task import SecondaryEntries, reduced
from tidemark.stream_writer.task_outcome import TaskSucceeded

CITY = KeptSecondary("secondary_index_city", "city", 3)
DAY = KeptSecondary("secondary_index_day", "day", 1)


def rows(*of: tuple[str, str | None, int]) -> pa.Table:
    keys, cities, days = zip(*of, strict=True) if of else ((), (), ())
    return pa.table(
        {
            "_hoodie_record_key": pa.array(keys, pa.string()),
            "city": pa.array(cities, pa.string()),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
        }
    )


def outcome_of(*changed: RowsChanged) -> TaskSucceeded:
    entries = SecondaryEntries([CITY, DAY])
    for each in changed:
        entries.add(each)
    return TaskSucceeded(entries=entries.packed(), secondary_groups={CITY.name: 0, DAY.name: 0})


def begun() -> commit_pb2.BeginResponse:
    one = commit_pb2.BatchRange(nonce="n", first=0, last=0, batches=1, records=1, checksum=1)
    return commit_pb2.BeginResponse(
        instant="20260101000000000",
        staging_dir="token",
        data=[commit_pb2.PartitionRanges(partition=0, ranges=[one])],
        secondary=[
            commit_pb2.KeptSecondary(name=each.name, column=each.column, groups=each.groups)
            for each in (CITY, DAY)
        ],
    )


def tasks_of(*outcomes: TaskSucceeded) -> list[SecondaryTask]:
    first = task_planner(FACTS)(begun(), 1)
    tasks = [decode_task(task) for task in index_tasks(begun(), first, outcomes)]
    return [task for task in tasks if isinstance(task, SecondaryTask)]


def changes_in(task: SecondaryTask) -> tuple[list[str], list[str]]:
    changes = reduced([unpacked(part) for part in task.parts])
    return sorted(changes.puts.to_pylist()), sorted(changes.deletes.to_pylist())


def test_tasks_are_told_of_the_indexes() -> None:
    [task] = map(decode_task, task_planner(FACTS)(begun(), 1))
    assert isinstance(task, EpochTask)
    assert task.secondary == [CITY, DAY]


def test_entries_of_all_tasks_go_to_the_group_of_their_value() -> None:
    cities = ["oslo", "paris", "rome", "a$b", None]
    made = [outcome_of(RowsChanged(rows(), rows((f"k{n}", city, n)))) for n, city in enumerate(cities)]
    found = {(task.index, task.group): changes_in(task)[0] for task in tasks_of(*made)}
    prefixes = ["oslo$", "paris$", "rome$", "a\\$b$", "\0$"]
    expected: dict[tuple[str, int], list[str]] = {(DAY.name, 0): [f"{n}$k{n}" for n in range(5)]}
    for number, (prefix, group) in enumerate(zip(prefixes, record_index_shard(prefixes, 3), strict=True)):
        expected.setdefault((CITY.name, int(group)), []).append(f"{prefix}k{number}")
    assert found == {at: sorted(keys) for at, keys in expected.items()}
    assert touched_groups(made) == {CITY.name: len(found) - 1, DAY.name: 1}
    assert sum(outcome.records_kept for outcome in made) == 10


@pytest.mark.parametrize("first", ["put", "delete"])
def test_a_put_beats_a_delete_of_the_same_entry_whichever_task_has_it(first: str) -> None:
    """A row that moves to another partition with its city, and changes its day."""
    gone = outcome_of(RowsChanged(rows(("k", "rome", 1), ("x", "rome", 1)), rows()))
    came = outcome_of(RowsChanged(rows(), rows(("k", "rome", 2))))
    made = [came, gone] if first == "put" else [gone, came]
    assert {task.index: changes_in(task) for task in tasks_of(*made)} == {
        CITY.name: (["rome$k"], ["rome$x"]),
        DAY.name: (["2$k"], ["1$k", "1$x"]),
    }


def test_without_changes_there_is_no_task() -> None:
    same = rows(("k", "rome", 1))
    made = outcome_of(RowsChanged(same, same))
    assert tasks_of(made) == []
    assert touched_groups([made]) == {CITY.name: 0, DAY.name: 0}


def test_a_row_that_is_too_long_for_the_index_is_named_with_the_way_out() -> None:
    long, longer = (RowsChanged(rows(), rows((key, "c" * (32_767 - 2), 1))) for key in ("k", "k1"))
    fits = SecondaryEntries([CITY])
    fits.add(long)
    # A row that goes away had an entry: its value fits.
    fits.add(RowsChanged(longer.after, longer.before))
    assert sum(entries.count for entries in fits.packed()) == 2
    entries = SecondaryEntries([CITY])
    entries.add(long)
    entries.add(longer)
    with pytest.raises(UnsupportedTableError, match=r"city .*'k1'.*index drop city.*epoch retry"):
        entries.packed()
