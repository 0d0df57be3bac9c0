"""The data files that count, found by listing the storage; and what the metadata table lists of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hudi_format.commit.instants import instant_path
from hudi_format.file_group.names import parse_data_file
from hudi_format.file_group.slices import FileGroupId, FileSlice, build_slices
from hudi_format.metadata_table.files_partition import FilesPartition
from hudi_format.storage.base import Storage, parent_of
from hudi_format.timeline import Action, Instant, State, Timeline
from hudi_format.timeline.avro_records import decode_replace_commit_metadata
from hudi_format.timeline.service_records import decode_compaction_plan
from tidemark_cli.verify.findings import Findings, Kind


@dataclass(frozen=True)
class CommittedFiles:
    """Partition path -> name -> size of files whose instant is committed; `ignored`: data files of others."""

    files: Mapping[str, Mapping[str, int]]
    ignored: int

    @property
    def count(self) -> int:
        """Number of files."""
        return sum(map(len, self.files.values()))


def list_committed(storage: Storage, timeline: Timeline) -> CommittedFiles:
    """All base and log files of the data table whose instant the timeline calls committed."""
    files: dict[str, dict[str, int]] = {}
    ignored = 0
    for top in storage.list(""):
        found = [top] if not top.is_dir else [] if top.name == ".hoodie" else storage.walk(top.path)
        for info in found:
            parsed = parse_data_file(info.name)
            if parsed is None:
                continue
            if timeline.is_committed(parsed.instant):
                files.setdefault(parent_of(info.path), {})[info.name] = info.size
            else:
                ignored += 1
    return CommittedFiles(files, ignored)


def current_slices(storage: Storage, timeline: Timeline, files: CommittedFiles) -> list[FileSlice]:
    """The slice that a snapshot query reads of each file group."""
    return build_slices(
        files.files,
        timeline,
        pending_compactions=_pending_compactions(storage, timeline),
        replaced=_replaced(storage, timeline),
    )


def check_listing(
    files: CommittedFiles, listed: FilesPartition, timeline: Timeline, findings: Findings
) -> None:
    """The `files` partition against the storage. Names of instants that are not committed are passed over."""
    for partition, of_partition in sorted(files.files.items()):
        if not listed.is_listed(partition):
            findings.add_one(Kind.PARTITION_NOT_LISTED, partition or "(the table's folder)")
        known = listed.files(partition)
        for name, size in sorted(of_partition.items()):
            where = f"{partition}/{name}" if partition else name
            if name not in known:
                findings.add_one(Kind.FILE_NOT_LISTED, where)
            elif known[name] != size:
                findings.add_one(Kind.FILE_SIZE, f"{where}: {size} bytes, listed with {known[name]}")
    for partition, name, _ in listed:
        parsed = parse_data_file(name)
        if parsed is None or not timeline.is_committed(parsed.instant):
            continue
        if name not in files.files.get(partition, {}):
            findings.add_one(Kind.FILE_MISSING, f"{partition}/{name}" if partition else name)


def _pending_compactions(storage: Storage, timeline: Timeline) -> dict[FileGroupId, str]:
    pending: dict[FileGroupId, str] = {}
    for instant in timeline.pending(Action.COMPACTION):
        path = instant_path(Instant(instant.requested, Action.COMPACTION, State.REQUESTED))
        for operation in decode_compaction_plan(storage.read(path), path).operations:
            pending[(operation.partition_path, operation.file_id)] = instant.requested
    return pending


def _replaced(storage: Storage, timeline: Timeline) -> dict[FileGroupId, str]:
    replaced: dict[FileGroupId, str] = {}
    for instant in timeline.completed(Action.REPLACE_COMMIT, Action.CLUSTERING):
        path = instant_path(instant)
        metadata = decode_replace_commit_metadata(storage.read(path), path)
        for partition, file_ids in metadata.replaced_file_ids.items():
            for file_id in file_ids:
                replaced[(partition, file_id)] = str(instant.completion)
    return replaced
