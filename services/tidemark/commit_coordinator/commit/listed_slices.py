"""Stats of file slices as a listing shows them (`domain/slice_stats.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.commit_coordinator.domain.slice_stats import SliceStats
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.storage.base import Storage, join_path


def listed_stats(slice_: FileSlice, sizes: Mapping[str, int]) -> SliceStats:
    """The stats of a slice; ``sizes``: file name -> bytes in its folder. A file that is not there counts 0
    bytes.
    """
    # They are in the order of their instants.
    oldest = slice_.log_files[0] if slice_.log_files else None
    return SliceStats(
        slice_.partition_path,
        slice_.file_id,
        base_bytes=sizes.get(slice_.base_file, 0) if slice_.base_file else 0,
        log_count=len(slice_.log_files),
        log_bytes=sum(sizes.get(name, 0) for name in slice_.log_files),
        oldest_log_ms=None if oldest is None else log_requested_ms(oldest),
    )


def index_stats(storage: Storage, snapshot: MetadataTableSnapshot) -> list[SliceStats]:
    """The newest slice of each file group of the metadata table. Lists the folder of each partition once."""
    stats: list[SliceStats] = []
    for partition, slices in snapshot.slices.items():
        listing = storage.list(join_path(METADATA_TABLE_PATH, partition))
        sizes = {info.name: info.size for info in listing}
        stats.extend(listed_stats(slice_, sizes) for slice_ in slices)
    return stats


def log_requested_ms(name: str) -> int:
    """The requested time of a log file's instant (Unix epoch); 0 where that is no date, as for the index's
    bootstrap.
    """
    parsed = LogFileName.parse(name)
    try:
        return 0 if parsed is None else instant_to_ms(parsed.instant)
    except HudiFormatError:
        return 0
