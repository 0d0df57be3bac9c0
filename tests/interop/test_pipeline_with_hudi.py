"""Tables of the whole pipeline before the judge: services as processes, Hudi on Spark and hudi-rs as readers.

What a table must hold comes from `tests.input_model`. Spark writes the tables of streams that have an
ordering field; the other tables are about keys, types and other writers, and are written without Spark.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.input_model import (
    DELETE_FIELD,
    SCHEMA,
    Delete,
    Event,
    InputModel,
    Row,
    Upsert,
)
from tests.interop import zoo
from tests.interop.judge import HudiJudge
from tests.interop.piped_table import ARROW, PipedTable
from tests.interop.test_operations_beside_us import IN_MAKE_OPERATIONS
from tests.interop.verdict import assert_record_index_is_data, assert_same_rows, assert_table_holds
from tests.pipeline import Pipeline
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def make_pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[MakePipeline]:
    with ExitStack() as stack:

        def make(
            name: str, type_: str, schema: Any = SCHEMA, *, spark: bool = False, **table: Any
        ) -> Pipeline:
            sections: dict[str, Any] = {"input": {"delete_field": DELETE_FIELD, **table.pop("input", {})}}
            if "hoodie" in table:
                sections["hoodie"] = table.pop("hoodie")
            settings = {"name": name, "type": type_, "record_key": ["id"], **table}
            pipeline = Pipeline(tmp_path, kafka.bootstrap_servers, settings, schema, spark=spark, **sections)
            return stack.enter_context(pipeline)

        yield make


def assert_index_finds(judge: HudiJudge, table: PipedTable) -> None:
    """A live and a deleted key by `id = …`, answered by the record index."""
    key = min(table.model.rows)
    found = judge.lookup(table.path, "id", key)
    rows = [{name: row[name] for name in ARROW.names} for row in found.rows]
    assert_same_rows(rows, [table.model.rows[key]], f"lookup of {key}")
    assert found.files_read == 1 < found.files_in_table
    gone = min({f"key-{number}" for number in range(400)} - set(table.model.rows))
    assert judge.lookup(table.path, "id", gone).rows == []


def assert_counts_balance(table: PipedTable) -> None:
    counts = table.pipeline.status()["records"]["committed"]
    outcomes = ("inserts", "updates", "deletes", "superseded", "no_ops", "dead_letters")
    assert counts["input"] == sum(counts[name] for name in outcomes) == table.model.received
    assert counts["inserts"] - counts["deletes"] == len(table.model.rows)
    assert min(counts["moves"], counts["superseded"], counts["deletes"]) > 100


def assert_stats_are_out(judge: HudiJudge, table: PipedTable) -> None:
    """Stats that a writer switched on while records flowed leave no trace in what readers find."""
    assert read_table_config(LocalStorage(table.path)).metadata_partitions == {"files", "record_index"}
    assert any("switched them on" in warning for warning in table.pipeline.status()["warnings"])
    for condition in ("ts > 400", "name like 'key-1%'", "region = 'region-1' and ts < 300"):
        rows = judge.filtered(table.path, condition, skipping=True)
        assert_same_rows(rows, judge.filtered(table.path, condition, skipping=False), condition)


def assert_incremental(judge: HudiJudge, table: PipedTable, before: dict[str, Row], since: str) -> None:
    changed = [row for key, row in table.model.rows.items() if before.get(key) is not row]
    assert changed
    assert_same_rows(judge.incremental(table.path, since), changed, f"incremental since {since}")


@pytest.mark.parametrize(
    ("type_", "ordering"),
    [
        ("merge_on_read", None),
        ("copy_on_write", "ts"),
        # What these have and the others have not, `test_operations_beside_us` does to a table of their kind:
        # Spark compacts rows with an ordering field, and writes while an epoch is in flight.
        pytest.param("merge_on_read", "ts", marks=IN_MAKE_OPERATIONS),
        pytest.param("copy_on_write", None, marks=IN_MAKE_OPERATIONS),
    ],
)
def test_streams_and_foreign_writes_end_as_the_model(
    judge: HudiJudge, make_pipeline: MakePipeline, type_: str, ordering: str | None
) -> None:
    name = f"{'mor' if 'read' in type_ else 'cow'}-{'ordered' if ordering else 'arrival'}"
    ordered = {"ordering": ordering} if ordering else {}
    pipeline = make_pipeline(name, type_, spark=bool(ordering), partition=["region"], **ordered)
    table = PipedTable(pipeline, InputModel(ordering=ordering))
    pipeline.start()
    victims = [{**table.stream.row(f"victim-{number}", 500), "region": "region-0"} for number in range(6)]
    table.feed([Upsert(row) for row in victims])
    since, before = table.epochs(2), dict(table.model.rows)
    table.epochs(2)
    assert_counts_balance(table)
    assert_table_holds(judge, table.path, table.model.live)
    assert_incremental(judge, table, before, since)
    assert_index_finds(judge, table)
    base_rows = judge.read_optimized(table.path)
    if type_ == "copy_on_write":
        assert_same_rows(base_rows, table.model.live, "read optimised")
    else:
        fed = {(row["id"], row["name"]) for row in table.fed}
        assert {(row["id"], row["name"]) for row in base_rows} <= fed

    # Spark on top while Tidemark runs idle: updates, moves, an insert, deletes; both go on.
    generation = pipeline.status()["coordinator"]["generation"]
    some = sorted(key for key in table.model.rows if key.startswith("key-"))[:40]
    moved = [
        {**table.model.rows[key], "region": f"region-{n % 7}", "ts": 10_000 + n, "name": "spark"}
        for n, key in enumerate(some)
    ]
    table.foreign_upsert(judge, [*moved, {**moved[0], "id": "of-spark", "region": "region-of-spark"}])
    table.foreign_delete(judge, ["victim-1", "victim-2"])
    again: list[Event] = [
        Upsert({**victims[1], "ts": 20_000, "region": "region-3", "name": "again"}),
        Delete("victim-2"),
        Delete("of-spark", 10_000, typed=True),
    ]
    table.feed([*again, *table.stream.events(700)])
    assert pipeline.status()["coordinator"]["generation"] > generation
    table.epochs(1)
    assert_table_holds(judge, table.path, table.model.live)

    if type_ == "merge_on_read":
        assert judge.compact(table.path, foreign_writer_options(str(table.path)))
        assert_same_rows(
            judge.read_optimized(table.path), table.model.live, "read optimised after compaction"
        )
        table.epochs(2)
        assert_table_holds(judge, table.path, table.model.live)
    if ordering is None:
        table.write_at_the_same_time(judge)
        table.epochs(1)
        assert_table_holds(judge, table.path, table.model.live)
        assert_stats_are_out(judge, table)
    verified = pipeline.command("verify", "--json")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["rows"] == len(table.model.rows)


def test_a_table_without_partitions(judge: HudiJudge, make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(
        "flat", "merge_on_read", partition=[], ordering="ts", index={"shards": 1, "lanes": 1}
    )
    table = PipedTable(pipeline, InputModel())
    pipeline.start()
    table.epochs(3)
    counts = pipeline.status()["records"]["committed"]
    assert counts["moves"] == 0
    assert counts["updates"] > 100
    assert_table_holds(judge, table.path, table.model.live)
    judge.upsert(
        table.path,
        pa.Table.from_pylist([{**table.model.live[0], "ts": 50_000, "name": "spark"}], schema=ARROW),
        foreign_writer_options(str(table.path)),
    )
    table.model.apply([Upsert({**table.model.live[0], "ts": 50_000, "name": "spark"})])
    table.epochs(1)
    assert_table_holds(judge, table.path, table.model.live)


@pytest.mark.parametrize("type_", ["merge_on_read", "copy_on_write"])
def test_takes_over_a_table_of_spark(judge: HudiJudge, make_pipeline: MakePipeline, type_: str) -> None:
    pipeline = make_pipeline(f"taken-over-{type_[:4]}", type_, partition=["region"], ordering="ts")
    table = PipedTable(pipeline, InputModel())
    rows = [table.stream.row(f"key-{number}", number) for number in range(0, 400, 2)]
    stats = {
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.partition.stats.enable": "true",
    }
    judge.create_table_with_spark(
        table.path,
        pa.Table.from_pylist(rows, schema=ARROW),
        table_type=type_.upper(),
        shards=4,
        options=stats,
    )
    table.model.apply([Upsert(row) for row in rows])
    files = sorted(str(each) for each in table.path.rglob("*"))
    refused = pipeline.command("coordinator")
    assert refused.returncode == 2
    assert "column_stats" in refused.stderr
    assert "tidemark table adopt --drop-stats" in refused.stderr
    assert files == sorted(str(each) for each in table.path.rglob("*"))
    adopted = pipeline.command("table", "adopt", "--drop-stats", "--yes", "--json")
    assert adopted.returncode == 0, adopted.stderr
    assert json.loads(adopted.stdout)["dropped"] == ["column_stats", "partition_stats"]

    pipeline.start()
    # Late events meet ordering values that only the data files hold.
    late = [Upsert({**row, "ts": row["ts"] - 1, "region": "region-late"}) for row in rows[:60]]
    table.feed(
        [*late, Delete(rows[70]["id"], 3, typed=True), Delete(rows[71]["id"]), *table.stream.events(700)]
    )
    table.epochs(1)
    assert_table_holds(judge, table.path, table.model.live)
    assert not any(row["region"] == "region-late" for row in table.model.live)


def test_awkward_keys_partitions_and_types(judge: HudiJudge, make_pipeline: MakePipeline) -> None:
    schema = json.loads(TableSchema.from_arrow("zoo", zoo.SCHEMA).avro_json)
    encoded = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
    pipeline = make_pipeline(
        "zoo", "merge_on_read", schema, partition=["region"], ordering="ts", hoodie=encoded
    )
    pipeline.start()
    partitions = zoo.ENCODED_PARTITIONS
    expected: dict[str, Row] = {}
    for epoch in range(3):
        for number, key in enumerate([*zoo.KEYS, *(f"k{n}" for n in range(40))]):
            row = zoo.row(
                number + epoch, key, partitions[(number + epoch * (number % 2)) % len(partitions)], epoch + 1
            )
            expected[key] = row
            pipeline.feed([(key.encode(), json.dumps(_wire(row)).encode())])
        pipeline.flush()
    # Deleted by null values: two keys as text (one that JSON would take for no key), one with JSON.
    gone = [zoo.KEYS[2], "null", zoo.KEYS[7]]
    as_json = json.dumps({"id": gone[2]})
    pipeline.feed((text.encode(), None) for text in (*gone[:2], as_json))
    pipeline.flush()
    for key in gone:
        del expected[key]
    assert pipeline.dead_letters() == []
    # hudi-rs 0.5.0 cannot open a table with a timestamp without time zone.
    assert_table_holds(judge, pipeline.table, list(expected.values()), hudi_rs=False)


def test_composite_keys_in_several_partition_fields(judge: HudiJudge, make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(
        "composite",
        "copy_on_write",
        record_key=["id", "name"],
        partition=["region", "amount"],
        ordering="ts",
        schema={**SCHEMA, "fields": [*SCHEMA["fields"][:4], {"name": "amount", "type": "int"}]},
    )
    pipeline.start()
    expected: dict[tuple[str, str | None], Row] = {}
    for epoch in range(3):
        for number in range(64):
            row: Row = {
                "id": f"k{number % 20}",
                "region": f"r {(number + epoch) % 3}",
                "ts": epoch,
                # Hudi writes `__null__` and `__empty__` into the record key for null and "".
                "name": f"n,{number % 4}:x" if number < 60 else (None, "", " ", "null")[number - 60],
                "amount": number % 2,
            }
            expected[row["id"], row["name"]] = row
            kafka_key = json.dumps([row["id"], row["name"]]).encode()
            pipeline.feed([(kafka_key, json.dumps(row).encode())])
        pipeline.flush()
    # A composite key as JSON of its fields, and as Hudi's own text.
    pipeline.feed_partition(
        0, [(json.dumps({"id": "k1", "name": "n,1:x"}).encode(), None), (b"id:k2,name:n,2:x", None)]
    )
    pipeline.flush()
    del expected["k1", "n,1:x"], expected["k2", "n,2:x"]
    assert pipeline.dead_letters() == []
    assert_same_rows(judge.snapshot(pipeline.table), list(expected.values()), "Spark snapshot")
    assert_record_index_is_data(judge, pipeline.table)


def _wire(value: Any) -> Any:
    """A row of the zoo as JSON input has it."""
    if isinstance(value, dict):
        return {name: _wire(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {name: _wire(each) for name, each in value}
        return [_wire(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
