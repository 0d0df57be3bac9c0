"""Divides the operations of a compaction into bins, each of which one child process works off.

A process costs half a second of CPU before it merges anything, so many small file groups share one. A bin is
not much larger than `BIN_BYTES` either: between two waves of bins the share of the services may change.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tidemark.errors import ErrorKind
from tidemark.hudi_format.table_services.operations import MergeOperation, MergeOutcome

BIN_BYTES: Final = 256 << 20
# Below this a second process would cost more than it saves.
_WORTH_A_PROCESS: Final = 16 << 20
# What opening and parsing a small file costs, as bytes that are read in that time.
_FILE_BYTES: Final = 64 << 10


class Blame(StrEnum):
    """Whether an operation's file group is the cause of its failure."""

    NONE = "none"
    """No: the disk is full, a service does not answer, the action is over."""
    PERHAPS = "perhaps"
    """It may be the machine as well: a sector cannot be read, memory was refused, the process died."""
    GROUP = "group"
    """Yes: its files are damaged, or of a kind that is not served."""


class NumberedOperation(msgspec.Struct, frozen=True):
    """An operation and its number in the plan."""

    ordinal: int
    operation: MergeOperation


class MergeBin(msgspec.Struct, frozen=True):
    """What one child process does, and within which bounds.

    `base_uri` is the table's folder, `token` names the action's prepared files. `schema` is the plan's.
    `scratch` is a folder on the machine of the process, "": one of Spark's local folders there.
    `is_nice`: other processes go first. `stats_columns`: of which columns the table keeps stats.
    """

    base_uri: str
    token: str
    instant: str
    is_index: bool
    schema: str
    memory_bytes: int
    scratch: str
    is_nice: bool
    operations: tuple[NumberedOperation, ...]
    stats_columns: tuple[str, ...] = ()


class MergeFailed(msgspec.Struct, frozen=True):
    """The error of an operation: its class, its text, what the kind of error asks for, and whether the file
    group is the cause.
    """

    ordinal: int
    error: str
    message: str
    kind: ErrorKind | None = None
    blame: Blame = Blame.NONE


class ChildMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child process says: of one operation what became of it, or, last of all, its greatest resident
    memory.
    """

    outcome: MergeOutcome | None = None
    failure: MergeFailed | None = None
    peak_bytes: int = 0


class BinReport(msgspec.Struct, frozen=True):
    """What became of a bin's operations. Those that are in neither list were not tried. `peak_bytes` is the
    child's greatest resident memory.
    """

    outcomes: tuple[MergeOutcome, ...]
    failures: tuple[MergeFailed, ...] = ()
    peak_bytes: int = 0


def weight(operation: MergeOperation) -> int:
    """Bytes that stand for the time that the operation takes."""
    return operation.base_bytes + operation.log_bytes + _FILE_BYTES * (1 + len(operation.log_files))


def divided(operations: Sequence[MergeOperation], tasks: int) -> list[list[NumberedOperation]]:
    """The operations as bins of about equal weight, the heaviest first. `tasks`: how many bins run at once.

    Every operation goes into the bin that is lightest so far, the heaviest operations first.
    """
    total = sum(map(weight, operations))
    worth = min(tasks, -(-total // _WORTH_A_PROCESS))
    count = max(min(max(worth, -(-total // BIN_BYTES)), len(operations)), 1)
    heap = [(0, number) for number in range(count)]
    bins: list[list[NumberedOperation]] = [[] for _ in heap]
    waiting = [NumberedOperation(ordinal, operation) for ordinal, operation in enumerate(operations)]
    for numbered in sorted(waiting, key=lambda one: weight(one.operation), reverse=True):
        held, number = heapq.heappop(heap)
        bins[number].append(numbered)
        heapq.heappush(heap, (held + weight(numbered.operation), number))
    filled = [some for some in bins if some]
    return sorted(filled, key=lambda some: sum(weight(numbered.operation) for numbered in some), reverse=True)


def encode_bin(work: MergeBin) -> bytes:
    """The bin as bytes, for a Spark task."""
    return msgspec.msgpack.encode(work)


def decode_bin(data: bytes) -> MergeBin:
    """The bin in these bytes."""
    return msgspec.msgpack.decode(data, type=MergeBin)


def encode_report(report: BinReport) -> bytes:
    """The report as bytes."""
    return msgspec.msgpack.encode(report)


def decode_report(data: bytes) -> BinReport:
    """The report in these bytes. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(data, type=BinReport)
