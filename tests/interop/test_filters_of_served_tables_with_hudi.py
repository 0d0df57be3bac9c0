"""Data skipping on column stats of every type, after everything that happens to a table: our epochs and
services, and Spark beside them. Each time Hudi on Spark finds by filters what is there, in fewer files.

`make filters` alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.filtered_life import Judged, ZooTable, scan_of
from tests.interop.judge import HudiJudge
from tests.interop.spark_operations import FAILS_BEFORE_COMMIT
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_config import TableType
from tidemark.table_verification.verify import verify_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("TIDEMARK_FILTERS" not in os.environ, reason="make filters"),
]

SERVED: Final = [ServiceKind.COMPACT_INDEX, ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX]


of_both_types = pytest.mark.parametrize("table_type", list(TableType))


def with_stats(folder: Path, table_type: TableType) -> ZooTable:
    life = ZooTable(folder, table_type)
    life.epochs_of_ours(3)
    scan = scan_of(life)
    scan.scan()
    scan.create(life.clock)
    life.epochs_of_ours(4)
    return life


@contextmanager
def judged_table(judge: HudiJudge, folder: Path, table_type: TableType) -> Iterator[Judged]:
    """With stats, judged; at the end `tidemark verify` agrees."""
    judged = Judged(judge, with_stats(folder, table_type))
    try:
        judged.skips_right("epochs")
        yield judged
        assert verify_table(judged.life.storage, lambda _: None).agrees
    finally:
        judged.spark.close()


def our_services(judged: Judged, table_type: TableType) -> None:
    if table_type is TableType.MERGE_ON_READ:
        judged.life.until_done(ServiceKind.COMPACT_DATA)
        judged.skips_right("compaction")
    for kind in SERVED:
        judged.life.until_done(kind)
        judged.skips_right(kind.value)


def spark_beside_epochs(judged: Judged) -> None:
    life = judged.life
    judged.upserts("s0", "s1")
    judged.skips_right("Spark's upsert")
    life.epochs_of_ours(2)
    judged.skips_right("epochs behind it")

    life._tag_epoch()
    while life.attempts.wait_for_unreported(0.0) is None:
        life.step_coordinator()
    generation = life.state().generation
    judged.upserts("s2")
    life.write_open_attempt()
    life.settle()
    assert life.state().generation > generation
    judged.skips_right("Spark's upsert between plan and decision")

    life.meet_spark()
    life.last = ()
    with judged.spark.in_flight(life.theirs(["s3"]).slice(3), "upsert"):
        life.epochs_of_ours(1)
        life.meet_spark()
    life.epochs_of_ours(1)
    judged.skips_right("an epoch within Spark's upsert")


@of_both_types
def test_our_services_and_spark_beside_epochs(
    judge: HudiJudge, tmp_path: Path, table_type: TableType
) -> None:
    with judged_table(judge, tmp_path / "t", table_type) as judged:
        our_services(judged, table_type)
        spark_beside_epochs(judged)


@of_both_types
def test_rollbacks(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    with judged_table(judge, tmp_path / "t", table_type) as judged:
        life, model = judged.life, dict(judged.life.model)
        judged.upserts("s0")
        judged.spark.rollback(judged.newest())
        life.model = dict(model)
        judged.skips_right("Spark's rollback of its upsert")
        life.epochs_of_ours(2)
        judged.skips_right("epochs behind the rollback")

        model = dict(life.model)
        with pytest.raises(Py4JJavaError):
            judged.upserts("s1", **FAILS_BEFORE_COMMIT)
        life.model = model
        judged.dies_long_ago()
        life.until_done(ServiceKind.ROLLBACK)
        judged.skips_right("our rollback of a dead write of Spark's")

        life._tag_epoch()
        while life.attempts.wait_for_unreported(0.0) is None:
            life.step_coordinator()
        life.run_open_attempt()
        life.fail_open_attempt(rewind=False)
        life.settle()
        life.epochs_of_ours(1)
        judged.skips_right("our attempt that was void")


@of_both_types
def test_a_restore(judge: HudiJudge, tmp_path: Path, table_type: TableType) -> None:
    with judged_table(judge, tmp_path / "t", table_type) as judged:
        life = judged.life
        # Hudi restores the metadata table along where its compaction is older than the savepoint.
        life.until_done(ServiceKind.COMPACT_INDEX)
        life.epochs_of_ours(1)
        life.meet_spark()
        kept = judged.newest()
        judged.spark.savepoint(kept)
        model, places = dict(life.model), dict(life.places)
        judged.upserts("s0")
        judged.upserts("s1")
        judged.spark.restore(kept)
        life.model, life.places = model, places
        judged.skips_right("a restore")
        life.epochs_of_ours(2)
        judged.skips_right("epochs behind the restore")
        judged.upserts("s2")
        life.epochs_of_ours(1)
        judged.skips_right("Spark's upsert and an epoch behind them")
