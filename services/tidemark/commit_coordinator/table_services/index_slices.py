"""The metadata table's current slices as archival looks at them: which instants their files need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from tidemark.commit_coordinator.table_services.listings import log_instant
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    parse_record_index_file_id,
)
from tidemark.hudi_format.metadata_table.snapshot import metadata_slices
from tidemark.hudi_format.metadata_table.validity import InstantValidity

_LOG: Final = ".log."
IndexFiles = Mapping[str, Sequence[str]]
"""Partition of the metadata table -> the names in its folder."""


def in_slices(files: IndexFiles, validity: InstantValidity, instants: Collection[str]) -> set[str]:
    """Those of the completed instants that have a log file in a current slice of the metadata table.

    A log file that completed before the newest base instant of its group is in an older slice, which settles
    nearly all of them without parsing their names.
    """
    completions = {
        requested: str(found.completion)
        for requested in instants
        if (found := validity.metadata.find(requested))
    }
    asked: dict[str, list[str]] = {}
    for partition, names in files.items():
        bases = list(validity.bases(names))
        newest = _newest(bases)
        asked[partition] = [str(base) for base in bases]
        for name in names:
            if _LOG not in name:
                continue
            file_id, _, instant = name[1:].rpartition(_LOG)[0].rpartition("_")
            if completions.get(instant, "") >= newest.get(file_id, "") and instant in completions:
                asked[partition].append(name)
    slices = metadata_slices(asked, validity)
    return {log_instant(name) for file_slice in slices for name in file_slice.log_files}


def under_slices(files: IndexFiles, validity: InstantValidity) -> set[str]:
    """The instants that made the base files of current slices. Those of a record index that is divided by
    partition are not among them: nothing is written to old partitions any more, so they would hold back
    archival in every such table.
    """
    found: set[str] = set()
    for partition, names in files.items():
        newest = _newest(validity.bases(names))
        is_index = partition == RECORD_INDEX.name
        found.update(made for group, made in newest.items() if not (is_index and _is_divided(group)))
    return found


def _is_divided(file_id: str) -> bool:
    return parse_record_index_file_id(file_id).partition_path is not None


def _newest(bases: Iterable[BaseFileName]) -> dict[str, str]:
    """File group -> the instant of its newest base file."""
    newest: dict[str, str] = {}
    for base in bases:
        newest[base.file_id] = max(base.instant, newest.get(base.file_id, ""))
    return newest
