"""Keys that Spark deletes, then events older and newer before compaction, judged by Hudi on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.input_model import DELETE_FIELD, SCHEMA, Delete, InputModel, Row, Upsert
from tests.interop.judge import HudiJudge
from tests.interop.piped_table import ARROW, PipedTable
from tests.interop.verdict import assert_table_holds
from tests.pipeline import Pipeline
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.schema import IS_DELETED_FIELD
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

# Of each kind of delete: keys whose next event is older than the deleted row, than the delete, and newer.
KEYS = [f"{kind}-{number}" for kind in ("plain", "valued") for number in range(6)]
MARKED = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": IS_DELETED_FIELD, "type": ["null", "boolean"], "default": None}],
}


def row(key: str, ts: int) -> Row:
    return {
        "id": key, "region": "r", "ts": ts, "name": f"{key}@{ts}", "amount": None, IS_DELETED_FIELD: None
    }  # fmt: skip


def test_events_older_than_what_spark_deleted_end_as_the_model(
    judge: HudiJudge, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """A delete without an ordering value (Hudi's DELETE operation) removes what there is, and what comes
    later counts; one with a value (`_hoodie_is_deleted`) keeps out what lies below it.
    """
    settings: dict[str, Any] = {
        "name": "older",
        "type": "merge_on_read",
        "record_key": ["id"],
        "partition": ["region"],
        "ordering": "ts",
    }
    deletes = {"delete_field": DELETE_FIELD}
    with Pipeline(
        tmp_path, kafka.bootstrap_servers, settings, MARKED, spark=False, input=deletes
    ) as pipeline:
        table = PipedTable(pipeline, InputModel())
        pipeline.start()
        table.feed([Upsert(row(key, 100)) for key in [*KEYS, "stays"]])
        table.feed([Upsert(row("stays", 101)), Delete("never", 5, typed=True)])
        options = foreign_writer_options(str(table.path))
        # Spark does not compact behind its write: the deletes could be gone before an assigner reads them. By
        # default it does after five deltacommits, and how many epochs ours are depends on the machine.
        deleting = {**options, "hoodie.compact.inline.max.delta.commits": "100"}
        plain = [row(key, 0) for key in KEYS if key.startswith("plain")]
        valued = [{**row(key, 200), IS_DELETED_FIELD: True} for key in KEYS if key.startswith("valued")]
        arrow = ARROW.append(pa.field(IS_DELETED_FIELD, pa.bool_()))
        judge.delete(table.path, pa.Table.from_pylist(plain, schema=arrow), deleting)
        judge.upsert(table.path, pa.Table.from_pylist(valued, schema=arrow), deleting)
        for key in KEYS:
            del table.model.rows[key]
            if key.startswith("valued"):
                table.model.tombstones[key] = 200

        before = pipeline.status()["records"]["committed"]["superseded"]
        for number, ts in enumerate((50, 150, 250)):
            table.feed([Upsert(row(f"{kind}-{number}", ts)) for kind in ("plain", "valued")])
        assert {key for key in table.model.rows if key != "stays"} == {
            "plain-0", "plain-1", "plain-2", "valued-2",
        }  # fmt: skip
        assert pipeline.status()["records"]["committed"]["superseded"] == before + 2
        table.feed(
            [Upsert(row("plain-0", 60)), Delete("plain-1", 160, typed=True), Upsert(row("plain-3", 1))]
        )
        assert_table_holds(judge, table.path, table.model.live)

        assert judge.compact(table.path, options)
        assert_table_holds(judge, table.path, table.model.live)
        table.feed([Upsert(row("plain-4", 2)), Upsert(row("valued-2", 251)), Upsert(row("valued-3", 150))])
        assert "valued-3" not in table.model.rows, "compaction took the delete, the tombstone is still there"
        assert_table_holds(judge, table.path, table.model.live)
        verified = pipeline.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout)["rows"] == len(table.model.rows)
