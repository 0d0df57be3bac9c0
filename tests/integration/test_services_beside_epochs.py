"""Table services on a real Kafka: both tables are compacted while epochs go on, the rows stay right, and a
reader that knows nothing of Tidemark agrees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.input_model import DELETE_FIELD, SCHEMA, InputModel, RandomStream, messages
from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.pipeline import Pipeline
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.retry import Deadline

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

SERVICES: Final = {
    "enabled": True,
    "clock_skew": "200ms",
    "compact_index": {"log_files": 3, "min_interval": "1s"},
    "compact_data": {"log_files": 3, "min_interval": "1s"},
    "archive": {"enabled": False},
}
_COMPACTED_S: Final = 600.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def pipeline_of(
    stack: ExitStack, kafka: EmbeddedKafka, folder: Path, name: str, *, spark: bool, **services: Any
) -> Pipeline:
    settings: dict[str, Any] = {"name": name, "record_key": ["id"], "partition": ["region"], "ordering": "ts"}
    settings |= {"type": "merge_on_read", "index": {"shards": 2}}
    made = Pipeline(
        folder,
        kafka.bootstrap_servers,
        settings,
        SCHEMA,
        spark=spark,
        input={"delete_field": DELETE_FIELD},
        table_services={**SERVICES, **services},
    )
    return stack.enter_context(made)


def compacted(pipeline: Pipeline) -> dict[str, int]:
    """Completed compactions of each table, by the names of their files."""
    folders = {"data": ".hoodie/timeline", "index": ".hoodie/metadata/.hoodie/timeline"}
    return {
        name: sum("_" in each.name for each in (pipeline.table / folder).glob("*.commit"))
        for name, folder in folders.items()
    }


def run_until_compacted(pipeline: Pipeline, model: InputModel, stream: RandomStream, wanted: int) -> None:
    deadline = Deadline(SystemClock(), _COMPACTED_S)
    while not deadline.is_over:
        events = list(stream.events(40))
        model.apply(events)
        pipeline.feed_partitions(messages(events, 2))
        pipeline.flush()
        if min(compacted(pipeline).values()) >= wanted:
            return
    raise AssertionError(f"{compacted(pipeline)} in {_COMPACTED_S} s:\n{pipeline.log('writer')}")


def check(pipeline: Pipeline, model: InputModel) -> None:
    assert_same_rows(hudi_rs_snapshot(pipeline.table), model.live, "rows")
    verified = pipeline.command("verify", "--json", "--full")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["rows"] == len(model.rows)


@pytest.mark.parametrize("spark", [True, False], ids=["spark", "separate"])
def test_both_tables_are_compacted_while_epochs_go_on(
    kafka: EmbeddedKafka, tmp_path: Path, stack: ExitStack, spark: bool
) -> None:
    more = {} if spark else {"run": "separate"}
    name = "services-spark" if spark else "services-separate"
    pipeline = pipeline_of(stack, kafka, tmp_path, name, spark=spark, **more)
    model, stream = InputModel(), RandomStream(seed=11, keys=150)
    pipeline.start()
    if not spark:
        pipeline.start("services")
    run_until_compacted(pipeline, model, stream, wanted=2)
    check(pipeline, model)
    failures = [kind for kind in pipeline.admin.services()[0].kinds if kind.failures is not None]
    assert failures == []
