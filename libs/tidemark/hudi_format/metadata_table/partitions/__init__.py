"""The partitions of the metadata table that Tidemark reads and keeps up to date, a module for each.

A further partition is a module beside these and an entry in `PARTITIONS`. From then on snapshots list its
folder in tables that have it (`partitions_in_use`), compactions and cleans of the metadata table take it in,
and `tidemark verify` looks for its orphans.
"""

from __future__ import annotations

from typing import Any, Final

from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataPartition
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX

PARTITIONS: Final[tuple[MetadataPartition[Any, Any], ...]] = (FILES, RECORD_INDEX, COLUMN_STATS)
