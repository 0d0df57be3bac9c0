"""What Spark does to a table, between two of our epochs and while one is in flight: our inserts, updates and
deletes go on, nothing is invisible, the index is the data.

`make operations` does each operation in each of four kinds of tables, between two epochs and during one.
`make interop` does each once: those that have epochs of ours in them between two (`compaction`, `LONG`), the
others during one, which is the harder case: Spark meets our pending instant, what was tagged for the epoch is
judged or tagged anew on top of what Spark did, and an epoch that began after it follows. What a coordinator
does about each while no epoch is open, and in an attempt, is in the simulated worlds (`REQUIRED` in
`tests/simulation/reached_states.py`: "foreign move", "foreign move in an attempt", and so on).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

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
from tests.interop.operated_table import BATCH, OperatedTable
from tests.interop.piped_table import PipedTable
from tests.interop.spark_operations import SparkOperations
from tests.pipeline import Pipeline
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

KEYS, SHARDS = 80, 4
# The first and the third are MERGE_ON_READ: so is the table of every other operation, compaction's too.
TABLES: tuple[tuple[str, str | None], ...] = (
    ("merge_on_read", "ts"),
    ("copy_on_write", "ts"),
    ("merge_on_read", None),
    ("copy_on_write", None),
)
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
    judge: HudiJudge, kafka: EmbeddedKafka, folder: Path, type_: str, ordering: str | None
) -> Iterator[OperatedTable]:
    """A pipeline with a table of two epochs, and Spark beside it."""
    settings: dict[str, Any] = {
        # Tables of several tests share a broker: each has topics of its own.
        "name": f"operated-{next(_SERIAL)}",
        "type": type_,
        "record_key": ["id"],
        "partition": ["region"],
        "index": {"shards": SHARDS},
        **({"ordering": ordering} if ordering else {}),
    }
    section = {"delete_field": DELETE_FIELD}
    with ExitStack() as stack:
        pipeline = stack.enter_context(
            Pipeline(folder, kafka.bootstrap_servers, settings, SCHEMA, spark=False, input=section)
        )
        table = PipedTable(pipeline, InputModel(ordering=ordering), keys=KEYS)
        pipeline.start()
        table.epochs(2, 2 * BATCH)
        spark = SparkOperations(judge, table.path, foreign_writer_options(str(table.path), SHARDS))
        stack.callback(spark.close)
        yield OperatedTable(judge, table, spark)


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


@pytest.mark.parametrize("number", range(len(TABLES)), ids=[f"{t}-{o or 'arrival'}" for t, o in TABLES])
def test_we_go_on_after_what_spark_did(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path, number: int
) -> None:
    with operated(judge, kafka, tmp_path, *TABLES[number]) as table:
        for operation in between(number):
            with named(f"between our epochs: {operation.__name__}"):
                operation(table)
                table.goes_on(table.after())
        for operation in during(number):
            with named(f"during an epoch of ours: {operation.__name__}"):
                if operation in CLEANS:
                    table.leave_something_to_clean(CLEANS[operation])
                with table.epoch_in_flight():
                    operation(table)
                table.agrees()
                table.goes_on(table.after())
        table.agrees_with_everybody()
