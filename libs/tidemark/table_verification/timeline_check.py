"""Checks the file names of both timelines: complete instants, completion times in order, no metadata commit
without its data instant.

The commit of an instant in the metadata table completes before the one in the data table. While the data
instant is pending, the metadata commit is not valid, which is no difference. A metadata commit without any
data instant is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    Timeline,
    parse_file_name,
)
from tidemark.hudi_format.timeline.service_records import decode_rollback_metadata, decode_rollback_plan
from tidemark.table_verification.findings import Findings, Kind

_BEFORE_COMPLETED: Final = (State.REQUESTED, State.INFLIGHT)


def check_timelines(storage: Storage, validity: InstantValidity, findings: Findings) -> None:
    """Adds differences to ``findings``. Both timelines must have been loaded before, the data table's
    first.
    """
    _check_instants(storage, validity.data, DATA_ROOT, findings)
    _check_instants(storage, validity.metadata, METADATA_TABLE_ROOT, findings)
    _check_metadata_commits(storage, validity, findings)


def _check_instants(storage: Storage, timeline: Timeline, root: str, findings: Findings) -> None:
    names = set(storage.names(f"{root}/timeline"))
    _check_completed_once(names, root, findings)
    by_completion: dict[str, Instant] = {}
    for instant in timeline.completed():
        where = instant_path(instant, root)
        completion = str(instant.completion)
        if completion <= instant.requested:
            findings.add_one(
                Kind.COMPLETION_ORDER, f"{where}: completes at {completion}, before it was requested"
            )
        other = by_completion.setdefault(completion, instant)
        if other is not instant:
            findings.add_one(Kind.COMPLETION_ORDER, f"{where}: completes with {other.file_name}")
        if instant.action is Action.SAVEPOINT:
            continue
        for state in _BEFORE_COMPLETED:
            earlier = Instant(instant.requested, instant.action, state).file_name
            # Archival deletes an instant's files one by one, once the archive has it.
            if earlier not in names and not _is_in_archive(timeline, instant.requested):
                findings.add_one(Kind.INSTANT_FILES, f"{where}: there is no {earlier}")


def _is_in_archive(timeline: Timeline, requested: str) -> bool:
    return timeline.archive is not None and timeline.archive.completion_time(requested) is not None


def _check_completed_once(names: Iterable[str], root: str, findings: Findings) -> None:
    """Two executors of one plan leave two completed files. Readers may take either."""
    completed: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        instant = parse_file_name(name)
        if instant is not None and instant.is_completed:
            key = (instant.requested, instant.action is Action.SAVEPOINT)
            completed.setdefault(key, []).append(name)
    for files in completed.values():
        if len(files) > 1:
            findings.add_one(Kind.COMPLETED_TWICE, f"{root}/timeline: {' and '.join(sorted(files))}")


def _check_metadata_commits(storage: Storage, validity: InstantValidity, findings: Findings) -> None:
    data = validity.data
    # Instants that were requested after the data timeline was listed are not in that listing, and are
    # ignored.
    newest = max(data.times(), default="")
    rolled_back: frozenset[str] | None = None
    for instant in validity.metadata.completed(Action.DELTA_COMMIT):
        if is_bootstrap_instant(instant.requested) or instant.requested > newest:
            continue
        where = instant_path(instant, METADATA_TABLE_ROOT)
        ours = data.find(instant.requested)
        if validity.is_of_restore(instant.requested):
            continue
        if ours is None and not data.is_archived(instant.requested):
            rolled_back = _rolled_back(storage, data) if rolled_back is None else rolled_back
            if instant.requested not in rolled_back:
                findings.add_one(
                    Kind.METADATA_COMMIT_ALONE, f"{where}: the table has no instant {instant.requested}"
                )
        elif ours is not None and ours.is_completed and str(ours.completion) <= str(instant.completion):
            findings.add_one(
                Kind.COMPLETION_ORDER,
                f"{where}: completes at {instant.completion}, after the data commit ({ours.completion})",
            )


def _rolled_back(storage: Storage, data: Timeline) -> frozenset[str]:
    """The instants that rollbacks name, also those that have not ended. Hudi may leave their commits in the
    metadata table.
    """
    paths = [instant_path(rollback) for rollback in data.completed(Action.ROLLBACK)]
    records = [decode_rollback_metadata(storage.read(path), path) for path in paths]
    named = {instant for record in records for instant, _ in record.rolled_back}
    for rollback in data.pending(Action.ROLLBACK):
        path = instant_path(Instant(rollback.requested, Action.ROLLBACK, State.REQUESTED))
        # Hudi passes over a plan whose writer died while it wrote it, and makes another one.
        with suppress(CorruptFileError, FileMissingError):
            named.add(decode_rollback_plan(storage.read(path), path).instant_to_rollback)
    return frozenset(named)
