"""Works off the operations of a bin, in the child process (`child.py`) or in a test's.

An operation whose file is prepared already is done: another task, or one of a coordinator before this one,
has left its outcome with the file. So a bin may be run again, and twice at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError, in_words, is_of_the_disk
from tidemark.hudi_format.metadata_table.partitions.column_stats import file_records
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.publication.port import GrowingFile, ServiceFiles
from tidemark.hudi_format.publication.tickets import Prepared
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds, MergeCounts
from tidemark.hudi_format.table_services.merging.data_group import RowRules, merge_data_group
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.operations import MergeOutcome, base_name
from tidemark.stream_writer.table_services.bins import Blame, MergeBin, MergeFailed, NumberedOperation

Emit = Callable[[MergeOutcome | MergeFailed], None]


def merge_bin(work: MergeBin, storage: Storage, files: ServiceFiles, emit: Emit) -> None:
    """Merges one operation after the other and emits what became of each. After an error that says that the
    action is over, the rest is not tried.
    """
    rules = None if work.is_index else _row_rules(storage, work)
    for numbered in work.operations:
        try:
            emit(_merged(work, storage, files, rules, numbered))
        except Exception as error:
            name, kind = type(error).__name__, kind_of(error)
            emit(MergeFailed(numbered.ordinal, name, in_words(error), kind, blame_of(error)))
            if kind is ErrorKind.FENCED:
                return


def blame_of(error: Exception) -> Blame:
    """Whether the file group of the merge is the cause of this error."""
    kind = kind_of(error)
    # A decoder that got no memory says that the bytes are damaged.
    if kind in (ErrorKind.CORRUPT, ErrorKind.INVALID) and not isinstance(error.__cause__, MemoryError):
        return Blame.GROUP
    if kind in (ErrorKind.RETRYABLE, ErrorKind.FENCED):
        return Blame.NONE
    return Blame.NONE if is_of_the_disk(error) else Blame.PERHAPS


def _row_rules(storage: Storage, work: MergeBin) -> RowRules:
    config = read_table_config(storage)
    schema = TableSchema.from_avro(work.schema, config.name)
    return RowRules(schema, *table_ordering(config, schema), work.stats_columns)


def _merged(
    work: MergeBin, storage: Storage, files: ServiceFiles, rules: RowRules | None, numbered: NumberedOperation
) -> MergeOutcome:
    name = base_name(numbered.operation, numbered.ordinal, work.instant, is_index=work.is_index)
    root = METADATA_TABLE_PATH if work.is_index else ""
    path = join_path(root, numbered.operation.partition, name)
    former = files.prepared(path)
    if former is not None:
        return _outcome_of(former, path)
    with tempfile.TemporaryDirectory(prefix="tidemark-merge-", dir=work.scratch or None) as folder:
        bounds = MergeBounds(work.memory_bytes, Path(folder))
        file = files.grow(path)
        try:
            if rules is None:
                counts = merge_index_shard(storage, numbered.operation, work.instant, file, bounds)
            else:
                counts = merge_data_group(storage, numbered.operation, rules, name, file, bounds)
            return _finished(files, file, path, _outcome(numbered, name, counts))
        finally:
            file.discard()


def _finished(files: ServiceFiles, file: GrowingFile, path: str, outcome: MergeOutcome) -> MergeOutcome:
    try:
        ticket = file.finish(msgspec.json.encode(outcome))
    except AlreadyExistsError:
        # Another version of a library compresses otherwise: the first file stays.
        first = files.prepared(path)
        if first is None:
            raise
        return _outcome_of(first, path)
    return msgspec.structs.replace(outcome, ticket=ticket)


def _outcome_of(prepared: Prepared, path: str) -> MergeOutcome:
    try:
        outcome = msgspec.json.decode(prepared.note, type=MergeOutcome)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path}: the note of its prepared file is not readable: {error}") from error
    return msgspec.structs.replace(outcome, ticket=prepared.ticket)


def _outcome(numbered: NumberedOperation, name: str, counts: MergeCounts) -> MergeOutcome:
    stats = file_records(numbered.operation.partition, name, counts.ranges)
    return counts.outcome(numbered.ordinal, name, stats=stats)
