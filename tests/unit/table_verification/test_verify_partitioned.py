"""Verification of tables whose record index is divided by data partition: sound ones agree, and each damage
is found in its partition, also where another partition has the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop.native_plan import CommitPlan
from tests.interop.partitioned_writer import Changes, Identity, PartitionedWriter
from tests.unit.table_files import orders, table_schema
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, RecordLocation
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.stream_runtime.clock import SystemClock
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import Verification, verify_table

EU, US = "2026-01-01", "2026-01-02"


class Writer(PartitionedWriter):
    """Writes the index entries that `damage` makes of a commit's own."""

    damage: Callable[[Changes], Changes] = staticmethod(lambda changes: changes)

    def _plan_rows(
        self, snapshot: MetadataTableSnapshot, upserts: pa.Table, deletes: Sequence[Identity]
    ) -> tuple[CommitPlan, Changes]:
        plan, changes = super()._plan_rows(snapshot, upserts, deletes)
        return plan, self.damage(changes)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    definition = TableDefinition(
        name="orders",
        table_type=TableType.MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("day",),
        ordering_fields=("at",),
        schema=table_schema().avro_json,
    )
    return Writer.create(tmp_path, table_schema(), definition, 0, kind=IndexKind.PARTITIONED)


def verified(writer: Writer) -> Verification:
    return verify_table(writer.table.storage, lambda _: None)


def of_days(keys: Sequence[str], at: int, *days: str) -> pa.Table:
    return orders(*((key, day, at) for day in days for key in keys))


def test_a_table_without_a_partition_agrees(writer: Writer) -> None:
    result = verified(writer)
    assert result.agrees, result.findings
    assert (result.rows, result.entries, result.shards) == (0, 0, 0)


def test_the_same_keys_in_two_partitions_agree(writer: Writer) -> None:
    keys = [f"k{number}" for number in range(20)]
    writer.commit_rows(of_days(keys, 1, EU, US))
    writer.shards = 3
    writer.commit_rows(of_days(keys[:5], 2, EU, "2026-01-03"), [(US, "k1"), (US, "k7")])
    result = verified(writer)
    assert result.agrees, result.findings
    assert (result.rows, result.entries, result.shards) == (43, 43, 7)
    assert (result.partitions, result.state) == (3, None)


def without(row: Identity) -> Callable[[Changes], Changes]:
    return lambda changes: {each: place for each, place in changes.items() if each != row}


def elsewhere(row: Identity) -> Callable[[Changes], Changes]:
    gone = RecordLocation(row[0], "00000000-0000-4000-8000-000000000001-0")
    return lambda changes: {each: gone if each == row else place for each, place in changes.items()}


def one_more(row: Identity) -> Callable[[Changes], Changes]:
    def damage(changes: Changes) -> Changes:
        place = next(place for (path, _), place in changes.items() if path == row[0])
        return {**changes, row: place}

    return damage


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (without((US, "k1")), Kind.ROW_WITHOUT_ENTRY, f"k1: in {US}"),
        (elsewhere((US, "k1")), Kind.ENTRY_ELSEWHERE, f"k1: the row is in {US}"),
        (one_more((US, "k9")), Kind.ENTRY_WITHOUT_ROW, f"k9: the index says {US}"),
    ],
)
def test_a_wrong_entry_is_found_though_another_partition_has_the_key(
    writer: Writer, damage: Callable[[Changes], Changes], kind: Kind, said: str
) -> None:
    writer.damage = damage
    writer.commit_rows(orders(("k1", EU, 1), ("k9", EU, 1), ("k1", US, 1), ("k2", US, 1)))
    result = verified(writer)
    assert dict(result.findings.counts) == {kind: 1}
    (example,) = result.findings.examples[kind]
    assert example.startswith(said)


def test_rows_of_a_partition_without_groups_have_no_entries(writer: Writer) -> None:
    writer.damage = lambda changes: {row: place for row, place in changes.items() if row[0] == EU}
    writer.commit_rows(of_days(["k1", "k2"], 1, EU, US))
    result = verified(writer)
    assert dict(result.findings.counts) == {Kind.ROW_WITHOUT_ENTRY: 2}
    assert result.shards == 2


def test_a_group_that_begins_with_a_file_of_a_write_that_was_given_up_is_named(writer: Writer) -> None:
    stray = writer.prepare_rows(of_days(["k1"], 1, EU)).instant.requested
    folder = Path(writer.table.storage.base_uri) / ".hoodie/metadata/record_index"
    left = {path.name: path.read_bytes() for path in folder.iterdir() if f"_{stray}." in path.name}
    rollback_pending(Unfenced(writer.table.storage), stray, InstantGenerator(SystemClock()))
    writer.commit_rows(of_days(["k1", "k2", "k3"], 1, EU, US))
    assert verified(writer).agrees
    for name, content in left.items():
        (folder / name).write_bytes(content)
    found = verified(writer).findings
    assert found.counts[Kind.INDEX_GROUP_HIDDEN] == 2
    assert found.examples[Kind.INDEX_GROUP_HIDDEN][0].startswith(
        "record-index-2026%2D01%2D01-0000-0: begins with"
    )
    assert f"_{stray}.log.1_0-0-0" in found.examples[Kind.INDEX_GROUP_HIDDEN][0]


def test_an_entry_in_another_group_of_its_partition_is_found(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.commit_rows(of_days([f"k{number}" for number in range(8)], 1, EU))
    folder = Path(writer.table.storage.base_uri) / ".hoodie/metadata/record_index"
    first, second = (
        next(
            path for path in folder.iterdir() if f"-{number:04d}-0_" in path.name and path.stat().st_size > 80
        )
        for number in range(2)
    )
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    counts = dict(verified(writer).findings.counts)
    assert counts[Kind.ENTRY_IN_WRONG_SHARD] == 8
