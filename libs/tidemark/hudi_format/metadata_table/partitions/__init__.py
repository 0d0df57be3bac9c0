"""The partitions of the metadata table that Tidemark reads and keeps up to date, a module for each.

A further partition is a module beside these and an entry in `PARTITIONS`. From then on snapshots list its
folder in tables that have it (`partitions_in_use`), compactions and cleans of the metadata table take it in,
and `tidemark verify` looks for its orphans. A secondary index of a table is one, too: `partition_named` makes
it of the name.
"""

from __future__ import annotations

from typing import Any, Final

from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataPartition
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SECONDARY_PREFIX,
    SecondaryIndexPartition,
)

PARTITIONS: Final[tuple[MetadataPartition[Any, Any], ...]] = (FILES, RECORD_INDEX, COLUMN_STATS)


def partition_named(name: str) -> MetadataPartition[Any, Any] | None:
    """The partition of this name; None where no module knows it."""
    if name.startswith(SECONDARY_PREFIX):
        return SecondaryIndexPartition(name)
    return next((partition for partition in PARTITIONS if partition.name == name), None)
