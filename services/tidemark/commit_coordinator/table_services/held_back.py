"""What keeps archival, cleaning and compaction from a part of their work for longer than usual: by kind, as
texts.

Pure. What holds them back for moments (our own epoch, a write of another engine that is under way) is not
named. A pending instant whose time is no date, as the `0000…N` of an index that is being built, is named at
once: nothing here says how old it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.table_services.archive_planning import STAYING, requested_beside
from tidemark.hudi_format.table_services.clean_planning import holds_cleans
from tidemark.hudi_format.timeline import Action, Instant

ARCHIVE_LOOKS_MS: Final = 60_000
"""Archival counts the writes of other engines that the fold knows. While no epoch is planned it looks at the
timeline itself, after so long."""
_USUAL_MS: Final = 60_000
_REPLACING: Final = (Action.REPLACE_COMMIT, Action.CLUSTERING)
_PLANNING: Final = (Action.COMPACTION, Action.LOG_COMPACTION, *_REPLACING)


def held_back(
    timelines: Timelines,
    config: TableServicesConfig,
    own: Collection[str],
    now_ms: int,
    *,
    index_build_ms: int,
    left_groups: int = 0,
) -> dict[ServiceKind, list[str]]:
    """``own``: requested times of our open attempt and actions. ``index_build_ms``: how long another engine
    may build an index. ``left_groups``: file groups that plans of other engines named at our last look. Kinds
    that nothing holds back are left out.
    """
    found = {
        ServiceKind.ARCHIVE: [
            *_archival(timelines, config, own, now_ms),
            *_index_archival(timelines, config, own, now_ms),
        ],
        ServiceKind.CLEAN_DATA: list(_cleaning(timelines, config, own, now_ms, index_build_ms)),
        ServiceKind.COMPACT_DATA: list(_compaction(timelines, own, now_ms, left_groups)),
    }
    return {kind: reasons for kind, reasons in found.items() if reasons}


def _archival(
    timelines: Timelines, config: TableServicesConfig, own: Collection[str], now_ms: int
) -> Iterator[str]:
    data = timelines.data
    writes = [instant.requested for instant in data.completed() if instant.action.is_write]
    archive = config.archive
    if len(writes) <= archive.max + archive.batch:
        return
    # What is older would be archived, were it not held back.
    stays = writes[-archive.min]
    cleaned_by_ms = config.clean.retain_ms + config.clean.interval_ms + ARCHIVE_LOOKS_MS + _USUAL_MS
    yield from _by_compaction(timelines, config, stays, now_ms)
    yield from _late_write(timelines, stays)
    for instant in data.instants:
        if instant.requested >= stays:
            break
        if instant.action is Action.SAVEPOINT:
            yield f"savepoint {instant.requested}: it and what is newer stays on the timeline"
        elif instant.action in STAYING and instant.is_completed:
            what = f"{instant.action.value} {instant.requested}"
            yield f"the {what}: what is newer stays while it has log files"
        elif instant.action in _REPLACING and _is_old(instant, now_ms, cleaned_by_ms):
            yield f"{instant.file_name}: the file groups that it replaced are not all cleaned"
        elif _is_stuck(instant, own, now_ms, _USUAL_MS):
            yield _pending(instant, now_ms)


def _index_archival(
    timelines: Timelines, config: TableServicesConfig, own: Collection[str], now_ms: int
) -> Iterator[str]:
    """What is pending on the metadata table's timeline, where that is long."""
    metadata, archive = timelines.metadata, config.archive
    writes = sum(instant.action.is_write for instant in metadata.completed())
    if writes <= archive.max + archive.batch:
        return
    for instant in metadata.pending():
        if _is_stuck(instant, own, now_ms, _USUAL_MS):
            yield f"metadata table: {_pending(instant, now_ms)}"
            return


def _by_compaction(
    timelines: Timelines, config: TableServicesConfig, stays: str, now_ms: int
) -> Iterator[str]:
    """Why the metadata table's compactions hold archival back: there is none, or the newest is older than
    they get, and a write that would be archived came after it.
    """
    newest = max((found.requested for found in timelines.metadata.completed(Action.COMPACTION)), default=None)
    if newest is None:
        yield "the metadata table has no completed compaction on its timeline: compact-index comes first"
        return
    late_ms = config.compact_index.max_age_ms + _USUAL_MS
    age_ms = _age_ms(newest, now_ms)
    if age_ms is None or age_ms <= late_ms:
        return
    written = (write for write in timelines.data.completed() if write.action.is_write)
    if any(write.requested < stays and str(write.completion) >= newest for write in written):
        yield (
            f"the metadata table's newest compaction is that of {newest}: what completed since stays on the "
            "timeline until the next compact-index"
        )


def _late_write(timelines: Timelines, stays: str) -> Iterator[str]:
    """The timeline's first write where it was open when a compaction was planned (`late_writes.py`)."""
    data = timelines.data
    first = next(write for write in data.completed() if write.action.is_write)
    if first.action is not Action.DELTA_COMMIT or first.requested >= stays:
        return
    compactions = [instant.requested for instant in data.instants if instant.action is Action.COMPACTION]
    for compaction in requested_beside(first, compactions)[:1]:
        yield (
            f"{first.file_name} was open when the compaction {compaction} was planned: it stays on the "
            "timeline until its file groups are compacted again"
        )


def _cleaning(
    timelines: Timelines, config: TableServicesConfig, own: Collection[str], now_ms: int, index_build_ms: int
) -> Iterator[str]:
    """The first instant that keeps files from cleans (`clean_planning.horizon`)."""
    building = [
        instant
        for instant in timelines.data.pending(Action.INDEXING)
        if (age_ms := _age_ms(instant.requested, now_ms)) is not None and age_ms < index_build_ms
    ]
    pending = [*timelines.data.pending(), *timelines.metadata.pending()]
    for instant in [*filter(holds_cleans, pending), *building]:
        if _is_stuck(instant, own, now_ms, config.clean.retain_ms + _USUAL_MS):
            yield f"{_pending(instant, now_ms)}: files of that time stay"
            return


def _compaction(timelines: Timelines, own: Collection[str], now_ms: int, left_groups: int) -> Iterator[str]:
    plans = [plan for plan in timelines.data.pending(*_PLANNING) if _is_stuck(plan, own, now_ms, _USUAL_MS)]
    if plans and left_groups:
        name = plans[0].file_name
        yield (
            f"{left_groups} file groups are left to other writers' plans, of which {name} is pending"
            f"{_since(plans[0], now_ms)}"
        )


def _pending(instant: Instant, now_ms: int) -> str:
    return f"{instant.file_name} of another writer is pending{_since(instant, now_ms)}"


def _is_stuck(instant: Instant, own: Collection[str], now_ms: int, after_ms: int) -> bool:
    if instant.is_completed or instant.action is Action.SAVEPOINT or instant.requested in own:
        return False
    age_ms = _age_ms(instant.requested, now_ms)
    return age_ms is None or age_ms > after_ms


def _is_old(instant: Instant, now_ms: int, after_ms: int) -> bool:
    age_ms = _age_ms(str(instant.completion), now_ms)
    return instant.is_completed and age_ms is not None and age_ms > after_ms


def _since(instant: Instant, now_ms: int) -> str:
    age_ms = _age_ms(instant.requested, now_ms)
    return "" if age_ms is None else f" since {age_ms // 60_000} min"


def _age_ms(time: str, now_ms: int) -> int | None:
    """None for a time that is no date: one that nobody can read silences nothing else."""
    try:
        return now_ms - instant_to_ms(time)
    except HudiFormatError:
        return None
