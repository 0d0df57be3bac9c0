"""The documents of table services: the plans of a compaction and of a clean, and what a compaction's task
reports.

They are Tidemark's own, in JSON; equal values give equal bytes. A plan's form on Hudi's timeline is made from
it when the action is committed: before that no other engine may see it (TABLE_SERVICES.md, section 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.metadata_table.stats_layout import StatsLayout
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import join_path

DATA_EXTENSION: Final = "parquet"
INDEX_EXTENSION: Final = "hfile"

_Document = TypeVar("_Document", bound=msgspec.Struct)


class MergeOperation(msgspec.Struct, frozen=True):
    """One file group of one compaction: the files that become one base file.

    Names are without folder, log files in merge order; bytes are sums of file sizes. ``base_instant`` is the
    slice's (`FileSlice.base_instant`). ``partition`` of an index is the folder below the metadata table's.
    """

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: tuple[str, ...]
    log_bytes: int
    base_bytes: int


class CompactionPlan(msgspec.Struct, frozen=True):
    """A compaction of the data table or (``is_index``) of the metadata table, requested at ``instant``.

    ``schema``: the record schema in Avro without Hudi's columns, as commits name it. ``missing_partitions``:
    partitions in which file groups with log files were left out; Hudi's planner looks there again.
    ``dropped``: numbers of the operations that are not committed, because their file groups changed since the
    plan was made. The numbers are in the names of files, so the operations keep theirs. ``stats``: the column
    stats that the table keeps, of which the new base files get records; None for a table without, and for
    the metadata table.
    """

    instant: str
    is_index: bool
    schema: str
    operations: tuple[MergeOperation, ...]
    missing_partitions: tuple[str, ...] = ()
    dropped: tuple[int, ...] = ()
    stats: StatsLayout | None = None

    def kept(self) -> list[tuple[int, MergeOperation]]:
        """(number, operation) of those that are not dropped."""
        gone = set(self.dropped)
        return [(number, operation) for number, operation in enumerate(self.operations) if number not in gone]

    def without(self, dropped: Sequence[int], missing_partitions: Sequence[str]) -> CompactionPlan:
        """The plan in which these operations are dropped."""
        return msgspec.structs.replace(
            self, dropped=tuple(dropped), missing_partitions=tuple(missing_partitions)
        )


class MergeOutcome(msgspec.Struct, frozen=True):
    """What a task reports for the operation number ``ordinal`` of its plan.

    ``name`` is `output_name`, ``size`` that file's bytes, ``rows`` its rows or entries; ``inserts``,
    ``updates``, ``deletes`` say what the log files did to the base file, ``log_records`` how many records
    they hold. The digest is of the live keys: their number, and the sum of their hashes modulo 2**64.
    ``ticket`` is None for a file that is visible already. ``stats``: key -> value of the file's records in
    the column stats, some hundred bytes for each column; none where it has no rows, or a column no range.
    """

    ordinal: int
    name: str
    size: int
    rows: int
    inserts: int
    updates: int
    deletes: int
    log_records: int
    digest_count: int
    digest_sum: int
    ticket: Ticket | None = None
    stats: dict[str, bytes] = {}


class CleanPlan(msgspec.Struct, frozen=True):
    """A clean of the data table or (``is_index``) of the metadata table, requested at ``instant``.

    ``files``: partition path -> names of the files to delete, both in order. ``retained``: requested time and
    completed word of the earliest instant whose slices are all kept; None where superseded files were left
    behind. ``last_completed``: requested time of the table's newest completed write. ``leftovers``: files and
    folders below `.hoodie` that belong to no instant any more. ``stats``: the column stats that the table
    keeps, from which the files' records go; None for a table without, and for the metadata table.
    """

    instant: str
    is_index: bool
    files: dict[str, tuple[str, ...]]
    last_completed: str
    retained: tuple[str, str] | None = None
    savepoints: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    stats: StatsLayout | None = None

    def paths(self, root: str) -> list[str]:
        """The paths of the files to delete. ``root``: the folder of the partitions."""
        return [join_path(root, partition, name) for partition, names in self.files.items() for name in names]

    def with_leftovers(self, leftovers: tuple[str, ...]) -> CleanPlan:
        """The plan that deletes these, too."""
        return msgspec.structs.replace(self, leftovers=leftovers)

    def with_stats(self, stats: StatsLayout | None) -> CleanPlan:
        """The plan for a table that keeps these column stats."""
        return msgspec.structs.replace(self, stats=stats)


def output_name(plan: CompactionPlan, ordinal: int) -> str:
    """The name, without folder, of the base file that operation number ``ordinal`` makes. It follows from the
    plan, so whoever repeats the operation makes the same file.
    """
    return base_name(plan.operations[ordinal], ordinal, plan.instant, is_index=plan.is_index)


def base_name(operation: MergeOperation, ordinal: int, instant: str, *, is_index: bool) -> str:
    """`output_name` without the plan, for a task that has some of its operations."""
    extension = INDEX_EXTENSION if is_index else DATA_EXTENSION
    return str(BaseFileName(operation.file_id, f"{ordinal}-0-0", instant, extension))


def output_path(plan: CompactionPlan, ordinal: int, root: str) -> str:
    """The path of that base file. ``root``: the folder of the partitions, "" for the data table."""
    return join_path(root, plan.operations[ordinal].partition, output_name(plan, ordinal))


def encode_plan(plan: CompactionPlan | CleanPlan) -> bytes:
    """The plan as a document."""
    return msgspec.json.encode(plan, order="deterministic")


def decode_plan(data: bytes, path: str) -> CompactionPlan:
    """The plan in the document at ``path``. Raises CorruptFileError."""
    return _decode(data, path, CompactionPlan)


def decode_clean(data: bytes, path: str) -> CleanPlan:
    """The plan of a clean in the document at ``path``. Raises CorruptFileError."""
    return _decode(data, path, CleanPlan)


def encode_outcomes(outcomes: tuple[MergeOutcome, ...]) -> bytes:
    """The outcomes of an action as a document, in order of their operations."""
    return msgspec.json.encode(sorted(outcomes, key=lambda outcome: outcome.ordinal), order="deterministic")


def decode_outcomes(data: bytes, path: str) -> tuple[MergeOutcome, ...]:
    """The outcomes in the document at ``path``. Raises CorruptFileError."""
    try:
        return msgspec.json.decode(data, type=tuple[MergeOutcome, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path}: what the tasks reported is not readable: {error}") from error


def _decode(data: bytes, path: str, kind: type[_Document]) -> _Document:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path}: the plan is not readable: {error}") from error
