"""Checks the newest file slices against what table services did to them, by names alone.

* A compaction with instant T merged the log files that its plan names. They must be those that completed
  before T: a log file that it left out is in a slice that nobody reads any more, and its rows are lost. The
  first log file of a group may complete again: archival takes builds of indexes from the timeline, and then
  Hudi counts these from 0 again. What its entries would change the checks of the index find.
* A log file of the metadata table whose instant is archived is dropped by Hudi's reader
  (METADATA_TABLE.md, section 8.1), so it may be in no current slice.
* Very long slices make readers slow. That is a warning, and no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline import Action, Timeline
from tidemark.table_verification.compactions import Compactions, instant_of
from tidemark.table_verification.findings import Findings, Kind

LOG_FILES_WARN: Final = 300
_SHOWN_MAX: Final = 5


def check_plans(
    newest: Sequence[FileSlice],
    every: Mapping[FileGroupId, Sequence[FileSlice]],
    compactions: Compactions,
    timeline: Timeline,
    root: str,
    findings: Findings,
) -> None:
    """Compares the log files that compactions merged with those that were before them.

    ``newest``: the slices that readers see; ``every``: all slices of each group, oldest first, as far as
    their files are there; ``root``: the folder of the partitions.
    """
    folding = {instant.requested for instant in timeline.completed(Action.LOG_COMPACTION)}
    for now in newest:
        operation = compactions.operation(now)
        instant = instant_of(now)
        if operation is None or instant is None:
            continue
        named = set(operation.log_files)
        former = {
            log
            for file_slice in every.get((now.partition_path, now.file_id), ())
            if operation.base_instant <= file_slice.base_instant < instant
            for log in file_slice.log_files
            if _instant(log) not in folding
        }
        where = join_path(root, now.partition_path, now.base_file or "")
        for log in sorted(former - named):
            findings.add_one(Kind.COMPACTION_PLAN, f"{where}: {log} was there before, and is not in its plan")
        later = (log for log in named.intersection(now.log_files) if not is_bootstrap_instant(_instant(log)))
        for log in sorted(later):
            findings.add_one(Kind.COMPACTION_PLAN, f"{where}: its plan has {log}, which completed later")


def check_archived_logs(
    slices: Mapping[str, Iterable[FileSlice]], validity: InstantValidity, root: str, findings: Findings
) -> None:
    """Looks for log files of archived instants in current slices of the metadata table.

    ``slices``: name of the partition -> its current slices.
    """
    for of_partition in slices.values():
        for file_slice in of_partition:
            for log in file_slice.log_files:
                instant = _instant(log)
                if is_bootstrap_instant(instant) or not validity.metadata.is_archived(instant):
                    continue
                where = join_path(root, file_slice.partition_path, log)
                findings.add_one(
                    Kind.ARCHIVED_LOG, f"{where}: {instant} is not on the metadata table's timeline any more"
                )


def long_slices(root: str, slices: Iterable[FileSlice]) -> Iterator[str]:
    """Warnings about the longest slices with more than `LOG_FILES_WARN` log files."""
    long = sorted(
        (file_slice for file_slice in slices if len(file_slice.log_files) > LOG_FILES_WARN),
        key=lambda file_slice: -len(file_slice.log_files),
    )
    for file_slice in long[:_SHOWN_MAX]:
        where = join_path(root, file_slice.partition_path, file_slice.file_id)
        logs = len(file_slice.log_files)
        yield f"{where} has {logs} log files behind its base file: nobody compacts it in time"
    if len(long) > _SHOWN_MAX:
        yield f"{len(long) - _SHOWN_MAX} more file groups have more than {LOG_FILES_WARN} log files each"


def _instant(name: str) -> str:
    parsed = parse_data_file(name)
    assert parsed is not None
    return parsed.instant
