"""What compactions did to file groups, by the plans that their timeline still has.

A compaction with instant T merges a slice's base file and the log files that completed before T into the base
file T. Its plan, `T.compaction.requested`, names them. So a slice can be written as it would be if nobody had
compacted it: the former base file with all log files since, in their order.

    plan 20:    base 10, logs a b
    plan 30:    base 20, log c
    slice:      base 30, log d          without the compactions: base 10, logs a b c d

The incremental verification compares such slices with what it verified before, and does not read the new base
file. What a compaction says that it wrote, number of keys and sum of their hashes, is in its commit
(`key_digest.DIGESTS_KEY`).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import DIGESTS_KEY, Digest, parse_digests
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.timeline.service_records import CompactionOperation, decode_compaction_plan

READ_ONE_IN: Final = 50
_HOPS_MAX: Final = 1_000
_Operations = Mapping[tuple[str, str], CompactionOperation]


class Compactions:
    """The completed compactions of one active timeline; plans and commits are read when they are asked for,
    once each.
    """

    def __init__(self, storage: Storage, timeline: Timeline, root: str) -> None:
        self._storage = storage
        self._root = root
        self._completed = {instant.requested: instant for instant in timeline.completed(Action.COMPACTION)}
        self._plans: dict[str, _Operations] = {}
        self._digests: dict[str, Mapping[str, Digest]] = {}

    def operation(self, file_slice: FileSlice) -> CompactionOperation | None:
        """The operation that made the slice's base file.

        None when no compaction did, or when its plan is archived or cannot be read.
        """
        instant = instant_of(file_slice)
        if instant is None or instant not in self._completed:
            return None
        if instant not in self._plans:
            self._plans[instant] = self._operations(instant)
        return self._plans[instant].get((file_slice.partition_path, file_slice.file_id))

    def digest(self, file_slice: FileSlice) -> Digest | None:
        """What the compaction that made the slice's base file says of its keys; None when it says nothing."""
        instant = instant_of(file_slice)
        if instant is None or instant not in self._completed:
            return None
        if instant not in self._digests:
            self._digests[instant] = self._said(self._completed[instant])
        return self._digests[instant].get(file_slice.file_id)

    def undone(self, file_slice: FileSlice, base_file: str | None) -> list[FileSlice] | None:
        """The slice as it is, then as it would be without its newest compaction, and so on, up to the one
        whose base file is ``base_file``.

        None when that is not known: a plan is gone, or the base file is not on the way.
        """
        steps = [file_slice]
        while steps[-1].base_file != base_file:
            last = steps[-1]
            operation = self.operation(last)
            if operation is None or len(steps) > _HOPS_MAX:
                return None
            logs = (*operation.log_files, *last.log_files)
            steps.append(
                FileSlice(
                    last.partition_path,
                    last.file_id,
                    operation.base_file or None,
                    operation.base_instant,
                    logs,
                )
            )
        return steps

    def _operations(self, instant: str) -> _Operations:
        path = instant_path(Instant(instant, Action.COMPACTION, State.REQUESTED), self._root)
        try:
            plan = decode_compaction_plan(self._storage.read(path), path)
        except (FileMissingError, CorruptFileError):
            return {}
        return {(operation.partition_path, operation.file_id): operation for operation in plan.operations}

    def _said(self, completed: Instant) -> Mapping[str, Digest]:
        path = instant_path(completed, self._root)
        try:
            commit = decode_commit_metadata(self._storage.read(path), path)
        except (FileMissingError, CorruptFileError):
            return {}
        return parse_digests(commit.extra_metadata.get(DIGESTS_KEY, ""))


def instant_of(file_slice: FileSlice) -> str | None:
    """The instant in the name of the slice's base file."""
    parsed = BaseFileName.parse(file_slice.base_file) if file_slice.base_file is not None else None
    return parsed.instant if parsed is not None else None


def is_read_by_turn(file_slice: FileSlice) -> bool:
    """Whether the new base file is read although its digest is known: one in `READ_ONE_IN`, each time
    another one.
    """
    return zlib.crc32(f"{file_slice.base_file}".encode()) % READ_ONE_IN == 0
