"""Tables whose secondary indexes cannot be kept are refused, each with reason and way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.hudi_format.metadata_tables import IndexedTable
from tidemark.hudi_format.index_definitions import (
    IndexKind,
    read_index_definitions,
    record_index_definition,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.secondary_admission import secondary_problems, without_secondary
from tidemark.hudi_format.table_config import TableType, read_table_config

CITY, AGE = "secondary_index_city", "secondary_index_age"


def problems(
    listed: set[str], defined: set[str], version: str = "V2", kind: TableType = TableType.MERGE_ON_READ
):
    storage = IndexedTable().storage
    added = {name: {**secondary_index_definition(name, "c"), "version": version} for name in defined}
    write_index_definitions(storage, {**read_index_definitions(storage), **added})
    config = read_table_config(storage)
    config = replace(config, metadata_partitions=config.metadata_partitions | listed, table_type=kind)
    assert not any(name in without_secondary(config).metadata_partitions for name in (CITY, AGE))
    return [(error.reason, error.remedy) for error in secondary_problems(storage, config)]


def test_one_that_is_listed_and_defined_is_kept() -> None:
    assert not problems(set(), set())
    assert not problems({CITY}, {CITY})
    assert not problems({CITY, AGE}, {CITY, AGE}, kind=TableType.COPY_ON_WRITE)


@pytest.mark.parametrize(
    ("listed", "defined", "version", "reason", "remedy"),
    [
        (set(), {CITY}, "V2", "was left half made, or was dropped", "tidemark index drop city"),
        ({CITY}, set(), "V2", "in use without a definition", "tidemark index drop"),
        ({CITY}, {CITY}, "V1", "version V1", "tidemark index drop"),
        ({CITY, AGE}, {CITY, AGE}, "V2", "only one secondary index", "drop the others"),
    ],
)
def test_others_are_refused(
    listed: set[str], defined: set[str], version: str, reason: str, remedy: str
) -> None:
    ((why, way_out),) = problems(listed, defined, version)
    assert reason in why
    assert remedy in way_out


def test_one_beside_a_partitioned_record_index_is_refused() -> None:
    storage = IndexedTable().storage
    index = {CITY: secondary_index_definition(CITY, "c")}
    for kind, refused in ((IndexKind.GLOBAL, 0), (IndexKind.PARTITIONED, 1)):
        write_index_definitions(storage, {"record_index": record_index_definition(kind), **index})
        config = read_table_config(storage)
        config = replace(config, metadata_partitions=config.metadata_partitions | {CITY})
        found = list(secondary_problems(storage, config))
        assert len(found) == refused
    assert "the record index is partitioned" in found[0].reason
    assert "tidemark index drop city" in found[0].remedy
