"""Spark writes as it does by default, with column and partition stats, to a table that keeps column stats of
ours: of the same columns, of more, of fewer, or of those that Hudi chooses; between two epochs of ours,
between plan and decision of one, and around one. The stream goes on, partition stats are gone with our next
commit, `status` says what was taken out, and filters lose no row.

`make filters` does all of it, `make interop` one case that the commit draws.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.commit_seed import seed_of_run
from tests.interop.filtered_life import OF_ALL_TYPES, Judged, ZooTable, tidemark_says, write_config
from tests.interop.judge import HudiJudge
from tests.interop.test_filters_of_served_tables_with_hudi import with_stats
from tests.simulation.test_status_details import taken
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.table_status.warnings import WarningKind
from tidemark.table_verification.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILTERS: Final = 8
_STATS: Final = "hoodie.metadata.index.column.stats"
OURS: Final = ZooTable.indexed
# Without a list Hudi takes the first 32 columns.
LISTS: Final = {"same": OURS, "more": ("id", *OURS, "ts"), "fewer": OURS[:3], "default": ()}
BY_DEFAULT: Final = ("id", "day", "ts", *OF_ALL_TYPES, "raw")


def between_epochs(judged: Judged) -> None:
    judged.upserts("s0")
    judged.life.epochs_of_ours(1)


def before_a_decision(judged: Judged) -> None:
    """The epoch's files are there, and written with stats."""
    life = judged.life
    life._tag_epoch()
    while life.attempts.wait_for_unreported(0.0) is None:
        life.step_coordinator()
    life.write_open_attempt()
    judged.upserts("s0")
    life.settle()


def around_an_epoch(judged: Judged) -> None:
    """What Spark listed when it began is out with our epoch, and listed again when Spark commits."""
    life = judged.life
    life.meet_spark()
    life.last = ()
    with judged.spark.in_flight(life.theirs(["s0"]).slice(3), "upsert"):
        life.epochs_of_ours(1)
        assert listed(life) == {"files", "record_index", "column_stats"}
        life.meet_spark()
    assert "partition_stats" in listed(life)
    life.epochs_of_ours(1)


CASES: Final = list(itertools.product((between_epochs, before_a_decision, around_an_epoch), LISTS, TableType))


def drawn() -> Sequence[object]:
    if "TIDEMARK_FILTERS" in os.environ:
        return CASES
    return [Random(seed_of_run("TIDEMARK_SEED", "stats switched on")).choice(CASES)]


def listed(life: ZooTable) -> set[str]:
    return set(read_table_config(life.storage).metadata_partitions)


def named(value: object) -> str:
    return value.value if isinstance(value, TableType) else getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("moment", "columns", "table_type"), drawn(), ids=named)
def test_stats_that_spark_switches_on_lose_no_row(
    judge: HudiJudge, tmp_path: Path, moment: object, columns: str, table_type: TableType
) -> None:
    assert callable(moment)
    life = with_stats(tmp_path / "t", table_type)
    options = foreign_writer_options(str(tmp_path / "t"), schema=life.schema.arrow)
    options |= {f"{_STATS}.enable": "true"}
    if LISTS[columns]:
        options |= {f"{_STATS}.column.list": ",".join(LISTS[columns])}
    judged = Judged(judge, life, options)
    try:
        moment(judged)
        assert told(life) == [expected(columns)]
        kept = {"column_stats"} if columns == "same" else set()
        assert listed(life) == {"files", "record_index"} | kept
        if kept:
            judged.skips_right("Spark's stats of our columns", FILTERS)
        else:
            judged.finds("Spark's stats of other columns", FILTERS, fewer=False)
        made_again(life, table_type)
        judged.skips_right("stats that were made again", FILTERS)
        assert verify_table(life.storage, lambda _: None).agrees
    finally:
        judged.spark.close()


def told(life: ZooTable) -> list[str]:
    """What `status` says of stats that were taken out, and it says nothing of a stream that halted."""
    assert life.coordinator is not None
    assert life.context is not None
    warnings = taken(life, life.coordinator.seen, taken_out=life.context.taken_out).warnings
    assert WarningKind.HALTED not in {each.kind for each in warnings}
    return [
        each.text.partition(", and they")[0] for each in warnings if each.kind is WarningKind.STATS_TAKEN_OUT
    ]


def expected(columns: str) -> str:
    if columns == "same":
        return "partition_stats: another writer switched them on"
    former, later = ", ".join(OURS), ", ".join(LISTS[columns] or BY_DEFAULT)
    return f"column_stats, partition_stats: another writer changed their columns from {former} to {later}"


def made_again(life: ZooTable, table_type: TableType) -> None:
    """By the command line, with the services stopped; then an epoch."""
    life.meet_spark()
    life.crash()
    file = write_config(Path(life.storage.base_uri).parent, table_type, life.schema)
    made = tidemark_says(file, "index", "create", "--column-stats", ",".join(OURS))
    assert made["columns"] == list(OURS)
    life.meet_clock()
    life.epochs_of_ours(1)
