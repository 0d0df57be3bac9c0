"""Which commit says the table's schema, what is seen of a timeline that goes on, and schema on read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from testing.memory_storage import InMemoryStorage
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import SchemaError, TableSchema, left_out, newer_union, union
from tidemark.hudi_format.table_config import (
    TableConfig,
    TableDefinition,
    TableType,
    new_table_properties,
    parse_table_config,
)
from tidemark.hudi_format.table_schema import SchemaChanges, table_schema
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, encode_commit_metadata

OWN = "tidemark.epoch"


def schema(**columns: pa.DataType) -> TableSchema:
    return TableSchema.from_arrow("t", pa.schema([("id", pa.string()), *columns.items()]))


NARROW, WIDE, WIDER = (
    schema(v=pa.int32()),
    schema(v=pa.int32(), w=pa.string()),
    schema(v=pa.int64(), x=pa.string()),
)


class Commits:
    """A timeline of schema-carrying commits; the requested time of number n is n minutes past."""

    def __init__(self) -> None:
        self.storage = InMemoryStorage()

    def add(
        self,
        number: int,
        text: str,
        action: Action = Action.DELTA_COMMIT,
        operation: str = "UPSERT",
        extra: Mapping[str, str] | None = None,
        completes: int | None = None,
    ) -> None:
        carried = {SCHEMA_KEY: text, **(extra or {})}
        content = encode_commit_metadata(CommitMetadata(extra_metadata=carried, operation_type=operation))
        requested = create_requested(Unfenced(self.storage), f"202601010000{number:02}000", action, b"")
        completion = f"202601010001{completes if completes is not None else number:02}000"
        complete(
            Unfenced(self.storage),
            create_inflight(Unfenced(self.storage), requested, b""),
            completion,
            content,
        )

    def schema(self) -> TableSchema | None:
        return table_schema(self.storage, config(), load_timeline(self.storage))


def config(created: TableSchema | None = None) -> TableConfig:
    text = created.avro_json if created is not None else None
    definition = TableDefinition(
        name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",), schema=text
    )
    return parse_table_config(new_table_properties(definition))


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
def test_the_newest_commit_by_completion_says_the_schema_a_replacecommit_too(action: Action) -> None:
    commits = Commits()
    commits.add(1, WIDER.avro_json, completes=1)
    commits.add(3, NARROW.avro_json, completes=4)
    commits.add(2, WIDE.avro_json, action, completes=5)
    commits.add(6, "", completes=6)
    assert commits.schema() == WIDE


@pytest.mark.parametrize(
    ("action", "operation"),
    [
        (Action.COMPACTION, "COMPACT"),
        (Action.COMMIT, "COMPACT"),
        (Action.CLUSTERING, "CLUSTER"),
        (Action.LOG_COMPACTION, "LOG_COMPACT"),
    ],
)
def test_a_table_service_only_repeats_what_was_known_when_it_was_planned(
    action: Action, operation: str
) -> None:
    commits = Commits()
    commits.add(1, WIDE.avro_json)
    commits.add(2, NARROW.avro_json, action, operation)
    assert commits.schema() == WIDE


def test_where_table_services_alone_are_left_on_the_timeline_the_newest_says_it() -> None:
    """A restore to a compaction, with what was before it archived."""
    commits = Commits()
    commits.add(1, NARROW.avro_json, Action.COMPACTION, "COMPACT")
    commits.add(2, WIDE.avro_json, Action.CLUSTERING, "CLUSTER")
    assert commits.schema() == WIDE
    assert table_schema(commits.storage, config(WIDER), load_timeline(commits.storage)) == WIDE


def test_before_any_commit_it_is_what_the_table_was_made_with() -> None:
    storage = InMemoryStorage()
    assert table_schema(storage, config(WIDE), load_timeline(storage)) == WIDE
    assert table_schema(storage, config(), load_timeline(storage)) is None


def test_each_commit_is_looked_at_once_and_what_raises_is_looked_at_again() -> None:
    commits = Commits()
    for number, text in enumerate((NARROW.avro_json, WIDE.avro_json, NARROW.avro_json, NARROW.avro_json), 1):
        commits.add(number, text, extra={} if number in (1, 2) else {OWN: str(number)})
    changes = SchemaChanges(commits.storage, "t", OWN)
    first = changes.look(load_timeline(commits.storage))
    assert [(each.schema, each.is_own) for each in first] == [(WIDE, False), (NARROW, True)]
    assert changes.look(load_timeline(commits.storage)) == []
    # One that was requested long ago and completes now, at a time before what was seen.
    commits.add(0, WIDER.avro_json, completes=0)
    assert [each.schema for each in changes.look(load_timeline(commits.storage))] == [WIDER]
    commits.add(9, '{"type": "record", "name": "t", "fields": [{"name": "e", "type": "null"}]}')
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"20260101000009000_.*column e"):
            changes.look(load_timeline(commits.storage))


def test_schema_on_read_in_a_commit_is_refused_by_name() -> None:
    commits = Commits()
    commits.add(1, NARROW.avro_json, extra={"latest_schema": '{"max_column_id": 3}'})
    with pytest.raises(UnsupportedTableError, match="20260101000001000.*schema on read"):
        commits.schema()


def test_two_schemas_of_a_table_are_united_by_the_wider_type() -> None:
    assert newer_union(WIDE, WIDER).arrow.names == ["id", "v", "w", "x"]
    assert newer_union(WIDE, WIDER).field("v").type == newer_union(WIDER, WIDE).field("v").type == pa.int64()
    assert union(WIDER, NARROW).field("v").type == pa.int64()
    with pytest.raises(SchemaError, match="column v"):
        union(NARROW, WIDER)
    for other in (schema(v=pa.bool_()), schema(v=pa.date32())):
        with pytest.raises(SchemaError, match="column v"):
            newer_union(WIDE, other)


def test_a_column_that_only_one_side_has_is_nullable() -> None:
    strict = TableSchema.from_arrow(
        "t",
        pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)]),
    )
    both = newer_union(WIDE, strict)
    assert [field.nullable for field in both.arrow] == [True] * 4


def test_what_a_file_would_lose_is_named_nested_fields_and_narrowed_types_too() -> None:
    place = pa.struct([("x", pa.int64()), ("y", pa.float64())])
    stored = pa.schema(
        [("_hoodie_record_key", pa.string()), ("id", pa.string()), ("v", pa.int64()), ("place", place),
         ("many", pa.list_(place)), ("gone", pa.bool_())]
    )  # fmt: skip
    smaller = pa.struct([("x", pa.int64())])
    wanted = schema(v=pa.int32(), place=smaller, many=pa.list_(smaller), more=pa.string()).arrow
    assert left_out(stored, wanted) == ["v (int64 → int32)", "place.y", "many.element.y", "gone"]
    assert left_out(wanted, wanted) == []
    assert left_out(NARROW.arrow, WIDER.arrow) == []
