"""What Spark does to a table whose own services never rest: each operation between our epochs, while our
compactions and cleans go on in processes of their own. (Archival has too few epochs of ours here to begin.)

`make services-interop` (TIDEMARK_SERVICES=all) runs it; `test_operations_beside_us` has the operations whose
outcome others must not change meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.input_model import DELETE_FIELD, SCHEMA, InputModel
from tests.interop.judge import HudiJudge
from tests.interop.operated_table import BATCH, OperatedTable
from tests.interop.piped_table import PipedTable
from tests.interop.served_story import CLEANS, DATA, INDEX, takes_minutes
from tests.interop.spark_operations import SparkOperations
from tests.interop.verdict import assert_same_rows
from tests.pipeline import Pipeline
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.table_status.services import ServiceKindState
from tidemark.table_verification.remembering import verify_and_remember
from tidemark.table_verification.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, takes_minutes]

SHARDS: Final = 4
RESTLESS: Final = {
    "run": "separate",
    "clock_skew": "200ms",
    "compact_index": {"log_files": 3, "min_interval": "1s"},
    "compact_data": {"log_files": 3, "min_interval": "1s"},
    "clean": {"retain": "20s", "interval": "1s"},
    "rollback": {"interval": "1s"},
}
OPERATIONS: Final[tuple[Callable[[OperatedTable], None], ...]] = (
    OperatedTable.update,
    OperatedTable.delete,
    OperatedTable.move,
    OperatedTable.clustering,
    OperatedTable.insert_overwrite,
    OperatedTable.delete_partition,
    OperatedTable.restore,
    OperatedTable.add_column,
)


class ServedTable(OperatedTable):
    """`verify` looks while services act. They rest where files are listed here, and opened only then: cleans
    keep them for seconds.
    """

    def agrees(self) -> None:
        storage = LocalStorage(self.table.path)
        changed = verify_and_remember(storage, full=False, say=lambda _: None, wait=time.sleep)
        full = verify_table(storage, lambda _: None, wait=time.sleep)
        for found in (changed, full):
            assert found.agrees, found.findings
            assert found.rows == found.entries == len(self.model.rows)
        with self.at_rest():
            assert_same_rows(self.judge.snapshot(self.table.path), self.expected(), "Spark snapshot")

    def compacted(self) -> bool:
        with self.at_rest():
            return super().compacted()

    def newest(self) -> str:
        with self.at_rest():
            return super().newest()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        pipeline = self.table.pipeline
        pipeline.admin.pause_services("a comparison")
        pipeline.wait("services at rest", lambda: not any(each.open for each in self.kinds()))
        yield
        pipeline.admin.resume_services()

    def kinds(self) -> list[ServiceKindState]:
        return self.table.pipeline.admin.services()[0].kinds


@contextmanager
def served(judge: HudiJudge, kafka: EmbeddedKafka, folder: Path, type_: str) -> Iterator[ServedTable]:
    settings: dict[str, Any] = {
        "name": f"served-{type_}",
        "type": type_,
        "record_key": ["id"],
        "partition": ["region"],
        "index": {"shards": SHARDS},
        "ordering": "ts",
    }
    with ExitStack() as stack:
        pipeline = stack.enter_context(
            Pipeline(
                folder,
                kafka.bootstrap_servers,
                settings,
                SCHEMA,
                spark=False,
                input={"delete_field": DELETE_FIELD},
                table_services=RESTLESS,
            )
        )
        table = PipedTable(pipeline, InputModel(ordering="ts"), keys=80)
        pipeline.start("coordinator", "assigner", "writer", "services")
        table.epochs(2, 2 * BATCH)
        spark = SparkOperations(judge, table.path, foreign_writer_options(str(table.path), SHARDS))
        stack.callback(spark.close)
        yield ServedTable(judge, table, spark)


@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
def test_we_go_on_beside_services_that_never_rest(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path, type_: str
) -> None:
    with served(judge, kafka, tmp_path, type_) as table:
        for operation in OPERATIONS:
            try:
                operation(table)
                table.goes_on(table.after())
            except BaseException as error:
                error.add_note(operation.__name__)
                raise
        with table.at_rest():
            table.agrees_with_everybody()
            acted = {
                ServiceKind(each.kind) for each in table.kinds() if each.last and each.last.outcome == "done"
            }
        merged = {DATA} if type_ == "merge_on_read" else set()
        assert acted >= {INDEX, *CLEANS, *merged}
