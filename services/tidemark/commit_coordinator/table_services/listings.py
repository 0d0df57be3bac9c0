"""What handlers list of a table when they plan, under its lock: files with sizes, plans and savepoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions_in_use import partitions_in_use
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Names, Storage, join_path
from tidemark.hudi_format.table_services.compaction_planning import SizedFiles
from tidemark.hudi_format.table_services.operations import decode_plan
from tidemark.hudi_format.timeline import DATA_ROOT, Action, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.timeline.clean_records import decode_savepoint

_LOG: Final = ".log."


def index_files(storage: Storage, known: SizedFiles = MappingProxyType({})) -> SizedFiles:
    """The files of the metadata table by partition. ``known``: what was found before; nobody changes a file
    under its name, so sizes are taken from there.
    """
    partitions = [partition.name for partition in partitions_in_use(storage)]
    if not known:
        return sized_files(storage, partitions, METADATA_TABLE_PATH)
    return {
        partition: _sized(storage, join_path(METADATA_TABLE_PATH, partition), known.get(partition, {}))
        for partition in partitions
    }


def unseen_partitions(context: Context, timeline: Timeline) -> set[str]:
    """Partitions with log files that the stats do not show yet, because of what other engines did: nobody has
    looked at the timeline since. Hudi's planner would find them neither in a plan of ours nor among what is
    written after it.

    All partitions where another engine took commits back: log files of a compaction that is undone count
    again, and so do those of replaced file groups.
    """
    storage, known = context.storage, context.fold().state.known()
    undoing = timeline.completed(Action.ROLLBACK, Action.RESTORE)
    if any(not known.has_seen(instant.file_name) for instant in undoing):
        return set(MetadataTableSnapshot.load(storage).files.partitions)
    found: set[str] = set()
    for instant in timeline.completed(Action.DELTA_COMMIT):
        if not known.has_seen(instant.file_name):
            path = instant_path(instant)
            found.update(decode_commit_metadata(storage.read(path), path).write_stats)
    return found


def sized_files(storage: Storage, partitions: Iterable[str], root: str = "") -> SizedFiles:
    """The files of these partitions; ``root``: the folder that they lie in."""
    return {
        partition: {
            info.name: info.size for info in storage.list(join_path(root, partition)) if not info.is_dir
        }
        for partition in partitions
    }


def group_files(
    storage: Storage,
    groups: Collection[FileGroupId],
    names_in: Callable[[str], Names],
    known: SizedFiles = MappingProxyType({}),
) -> SizedFiles:
    """The files of these file groups of the data table. Of others in the same folders only the names are
    looked at. ``names_in``: folder -> names in it. ``known``: what was found before. Nobody changes a file
    under its name, so sizes are taken from there.
    """
    wanted: dict[str, set[str]] = {}
    for partition, file_id in groups:
        wanted.setdefault(partition, set()).add(file_id)
    found: dict[str, dict[str, int]] = {}
    for partition, file_ids in sorted(wanted.items()):
        names = names_of(names_in(partition), file_ids)
        found[partition] = _sizes(storage, partition, names, known.get(partition, {}))
    return found


def _sized(storage: Storage, folder: str, known: Mapping[str, int]) -> dict[str, int]:
    """The files of a folder of the metadata table, which has no folders in it but hidden ones."""
    return _sizes(storage, folder, sorted(storage.names(folder)), known)


def _sizes(storage: Storage, folder: str, names: list[str], known: Mapping[str, int]) -> dict[str, int]:
    new = storage.sizes(folder, [name for name in names if name not in known])
    return {name: size for name in names if (size := known.get(name, new.get(name))) is not None}


def group_ids(names: Iterable[str]) -> set[str]:
    """The ids of the file groups whose files have these names."""
    return {name.lstrip(".").partition("_")[0] for name in names}


def log_instant(name: str) -> str:
    """The instant in a log file's name, "" for another file."""
    return name.rpartition(_LOG)[0].rpartition("_")[2] if _LOG in name else ""


def names_of(names: Iterable[str], file_ids: Collection[str]) -> list[str]:
    """Those of the names that are files of the file groups, in order."""
    return sorted(name for name in names if name.lstrip(".").partition("_")[0] in file_ids)


def open_plans(context: Context, kind: ServiceKind) -> Mapping[FileGroupId, str]:
    """File group -> requested time of our own open compaction of this kind that names it."""
    held = context.fold().state.services.get(kind)
    if held is None:
        return {}
    planned = held.planned
    document = load_document(context.storage, planned.plan_path, planned.plan_sha256)
    operations = decode_plan(document, planned.plan_path).operations
    return {(operation.partition, operation.file_id): planned.instant for operation in operations}


def own_pending(context: Context) -> Collection[str]:
    """The requested times of instants that are ours, and may be pending."""
    state = context.fold().state
    instants = {action.planned.instant for action in state.services.values()}
    instants.update(voided.instant for voided in state.voided if voided.instant is not None)
    if state.planned is not None and state.planned.instant is not None:
        instants.add(state.planned.instant)
    return instants


def savepoints(storage: Storage, timeline: Timeline) -> dict[str, Mapping[str, tuple[str, ...]]]:
    """Requested time -> partition -> names of the files that the savepoint keeps."""
    kept = {}
    for saved in timeline.completed(Action.SAVEPOINT):
        path = instant_path(saved)
        kept[saved.requested] = decode_savepoint(storage.read(path), path)
    return kept


def first_seen(term: Term, timeline: Timeline, root: str = DATA_ROOT) -> Callable[[str], str | None]:
    """Requested time of a committed instant -> when readers saw it first; None for one that is not committed.

    That is its completion time, or the time of its completed file where that is later: a successor finishes
    what was decided long before. An archived instant has only its completion time.
    """
    known: dict[str, str | None] = {}

    def seen(requested: str) -> str | None:
        if requested not in known:
            known[requested] = _first_seen(term, timeline, root, requested)
        return known[requested]

    return seen


def _first_seen(term: Term, timeline: Timeline, root: str, requested: str) -> str | None:
    completion = timeline.completion_time(requested)
    instant = timeline.find(requested)
    if completion is None or instant is None:
        return completion
    written_ms = term.written_ms(instant_path(instant, root))
    return completion if written_ms is None else max(completion, instant_from_ms(written_ms))
