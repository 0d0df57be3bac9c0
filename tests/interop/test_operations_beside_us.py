"""What Spark does to a table, between two of our epochs and while one is in flight: our inserts, updates and
deletes go on, nothing is invisible, the index is the data.

`make operations` does each operation in each of four kinds of tables with each of four kinds of indexes
(`operated_index`), between two epochs and during one, and asks Spark about the index behind each.

`make interop` does each once, in four tables with another kind of index each, which the commit draws
(`TIDEMARK_SEED` draws others), and asks Spark about the index twice in each table. Those operations that have
epochs of ours in them come between two (`compaction`, `LONG`), the others during one, which is the harder
case: Spark meets our pending instant, what was tagged for the epoch is judged or tagged anew on top of what
Spark did, and an epoch that began after it follows. What a coordinator does about each while no epoch is
open, and in an attempt, is in the simulated worlds (`REQUIRED` in `tests/simulation/reached_states.py`:
"foreign move", "foreign move in an attempt", and so on).

Log compactions of Hudi's are not among them: they take the index entries of rows that moved, in tables
without us, too (docs/hudi-beside.md).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.commit_seed import seed_of_run
from tests.input_model import DELETE_FIELD, SCHEMA, InputModel
from tests.interop.judge import HudiJudge
from tests.interop.long_operations import (
    HOURS_AHEAD,
    clean_by_hours,
    clock_apart,
    clustering_across_an_epoch,
    write_in_flight,
    write_in_flight_that_loses,
)
from tests.interop.operated_index import (
    ColumnStats,
    PartitionedIndex,
    SecondaryIndex,
    TableIndex,
)
from tests.interop.operated_table import BATCH, OperatedTable
from tests.interop.piped_table import PipedTable
from tests.interop.ruled_table import look
from tests.interop.spark_operations import SparkOperations
from tests.pipeline import Pipeline
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

KEYS = 80
# The first and the third are MERGE_ON_READ: so is the table of every other operation, compaction's too.
TABLES: tuple[tuple[str, str | None], ...] = (
    ("merge_on_read", "ts"),
    ("copy_on_write", "ts"),
    ("merge_on_read", None),
    ("copy_on_write", None),
)
INDEXES: tuple[TableIndex, ...] = (TableIndex(), ColumnStats(), SecondaryIndex(), PartitionedIndex())
_SERIAL = itertools.count()
ALL = os.environ.get("TIDEMARK_OPERATIONS") == "all"
IN_MAKE_OPERATIONS = pytest.mark.skipif(not ALL, reason="make operations")
Operation = Callable[[OperatedTable], None]
OPERATIONS: tuple[Operation, ...] = (
    OperatedTable.update,
    OperatedTable.delete,
    OperatedTable.move,
    OperatedTable.insert_into_our_groups,
    OperatedTable.compaction,
    OperatedTable.clean_by_commits,
    OperatedTable.clustering,
    OperatedTable.insert_overwrite,
    OperatedTable.rollback,
    OperatedTable.delete_partition,
    OperatedTable.clean_by_versions,
    OperatedTable.restore,
    OperatedTable.rollback_of_a_pending_write,
    OperatedTable.archive,
    OperatedTable.compaction_and_clean,
    OperatedTable.add_column,
    OperatedTable.insert,
    OperatedTable.bulk_insert,
    OperatedTable.merge_into,
    OperatedTable.insert_overwrite_table,
)
# Epochs of ours are a part of most. Hours and clocks leave Spark's clock ahead of ours, for what comes after.
LONG: tuple[Operation, ...] = (
    clustering_across_an_epoch,
    write_in_flight,
    clean_by_hours,
    clock_apart,
    write_in_flight_that_loses,
)
# One that has an epoch of ours in it, too, which it has not during one.
WITH_EPOCHS: tuple[Operation, ...] = (OperatedTable.compaction,)
# What a clean deletes is there before our epoch gets in flight. The hours that the cleaner's clock is ahead.
CLEANS: dict[Operation, int] = {
    OperatedTable.clean_by_commits: 0,
    OperatedTable.clean_by_versions: 0,
    clean_by_hours: HOURS_AHEAD,
}


def chosen(number: int, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """What a table gets of these: every fourth, or all that it can have."""
    if not ALL:
        return operations[number % len(TABLES) :: len(TABLES)]
    is_log = TABLES[number % len(TABLES)][0] == "merge_on_read"
    return tuple(each for each in operations if is_log or each is not OperatedTable.compaction)


def between(number: int) -> tuple[Operation, ...]:
    """What Spark does between our epochs."""
    own = chosen(number, OPERATIONS)
    return (*(each for each in own if ALL or each in WITH_EPOCHS), *chosen(number, LONG))


def during(number: int) -> tuple[Operation, ...]:
    """What it does during one."""
    own = chosen(number + 2, OPERATIONS)
    return (
        *(each for each in own if ALL or each not in WITH_EPOCHS),
        *(chosen(number + 2, LONG) if ALL else ()),
    )


@contextmanager
def operated(
    judge: HudiJudge,
    kafka: EmbeddedKafka,
    folder: Path,
    type_: str,
    ordering: str | None,
    index: TableIndex | None = None,
) -> Iterator[OperatedTable]:
    """A pipeline with a table of two epochs, and Spark beside it."""
    index = index or TableIndex()
    settings: dict[str, Any] = {
        # Tables of several tests share a broker: each has topics of its own.
        "name": f"operated-{next(_SERIAL)}",
        "type": type_,
        "record_key": ["id"],
        "partition": ["region"],
        "index": dict(index.configured),
        **({"ordering": ordering} if ordering else {}),
    }
    section = {"delete_field": DELETE_FIELD}
    with ExitStack() as stack:
        pipeline = stack.enter_context(
            Pipeline(folder, kafka.bootstrap_servers, settings, SCHEMA, spark=False, input=section)
        )
        table = PipedTable(pipeline, InputModel(ordering=ordering), keys=KEYS, stays=index.stays)
        pipeline.start()
        table.epochs(2, 2 * BATCH)
        spark = SparkOperations(judge, table.path, index.options(table.path), index.spark)
        stack.callback(spark.close)
        operated = OperatedTable(judge, table, spark, index)
        index.make(operated)
        yield operated


def is_refused(table: OperatedTable, operation: Operation) -> set[str]:
    """By Hudi, in the midst of its commit. Returns what it leaves pending."""
    before = {each.requested for each in look(table.table.path).timeline.pending()}
    reason = table.index.refused[operation.__name__]
    with table.taken_back(), pytest.raises(Exception, match=reason):
        operation(table)
    left = {each.requested for each in look(table.table.path).timeline.pending()} - before
    assert left
    return left


@contextmanager
def named(what: str) -> Iterator[None]:
    """A failure says what was done."""
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


def test_each_operation_is_done_to_one_of_the_tables() -> None:
    done = {each for number in range(len(TABLES)) for each in (*between(number), *during(number))}
    assert done == {*OPERATIONS, *LONG}


def cases() -> list[Any]:
    """(number of the table, index): all of them, or each table with another index."""
    numbers = range(len(TABLES))
    drawn = Random(seed_of_run("TIDEMARK_SEED", "operations")).sample(INDEXES, len(INDEXES))
    chosen = itertools.product(numbers, INDEXES) if ALL else zip(numbers, drawn, strict=True)
    return [
        pytest.param(number, index, id=f"{TABLES[number][0]}-{TABLES[number][1] or 'arrival'}-{index.name}")
        for number, index in chosen
    ]


@pytest.mark.parametrize(("number", "index"), cases())
def test_we_go_on_after_what_spark_did(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path, number: int, index: TableIndex
) -> None:
    with operated(judge, kafka, tmp_path, *TABLES[number], index) as table:
        for operation in possible(between(number), index):
            with named(f"between our epochs: {operation.__name__}"):
                done(table, operation)
                table.goes_on(table.after())
                if ALL:
                    index.is_right(table, is_asked_by_a_write=True)
        with named("between our epochs"):
            index.is_right(table, is_asked_by_a_write=False)
        for operation in possible(during(number), index):
            with named(f"during an epoch of ours: {operation.__name__}"):
                if operation in CLEANS:
                    table.leave_something_to_clean(CLEANS[operation])
                with table.epoch_in_flight():
                    done(table, operation)
                table.agrees()
                table.goes_on(table.after())
                if ALL:
                    index.is_right(table, is_asked_by_a_write=True)
        index.is_right(table, is_asked_by_a_write=True)
        table.agrees_with_everybody()


def possible(operations: tuple[Operation, ...], index: TableIndex) -> Iterator[Operation]:
    return (each for each in operations if each.__name__ not in index.passed_over)


def done(table: OperatedTable, operation: Operation) -> None:
    """The operation, or that Hudi refuses it: an epoch of ours follows before what is left is taken back."""
    if operation.__name__ not in table.index.refused:
        operation(table)
        return
    left = is_refused(table, operation)
    table.meanwhile()
    table.taken_back_by_a_clean(left)
