"""Compaction, cleaning and archival for `tidemark status`: what the timelines show, and who runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    Timeline,
    parse_file_name,
)
from tidemark.table_status.services import OwnServices
from tidemark.table_status.status import TableServices, TimelineState
from tidemark.table_status.warnings import StatusWarning, WarningKind

RUN_BY_OTHERS: Final = "Hudi on Spark"
RUN_BY_US: Final = "Tidemark"
FAILURES_WARN: Final = 2
"""A single failure may be another writer's doing, and is only listed."""
_TIMELINE_FILES_WARN: Final = 3_000
_SERVICES: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.CLUSTERING)


def table_services(storage: Storage, own: OwnServices) -> TableServices:
    """For each timeline: pending table services, the newest completed ones, the number of timeline files.

    ``own``: the services that Tidemark runs itself. Raises OSError, HudiFormatError.
    """
    timelines = load_timelines(storage)
    data, metadata = _files(storage, DATA_ROOT), _files(storage, METADATA_TABLE_ROOT)
    return TableServices(
        run_by=RUN_BY_US if own.enabled else RUN_BY_OTHERS,
        scheduled_by_tidemark=[state.kind for state in own.kinds],
        table=_of(timelines.data, data),
        metadata_table=_of(timelines.metadata, metadata),
        warnings=[*_warnings("table", data, own), *_warnings("metadata table", metadata, own)],
        own=own,
    )


def service_warnings(own: OwnServices) -> Iterator[StatusWarning]:
    """What somebody should know of Tidemark's own services. No epoch waits for any of it."""
    for state in own.kinds:
        if (failures := state.failures) is not None and failures.in_a_row >= FAILURES_WARN:
            text = (
                f"table service {state.kind} has failed {failures.in_a_row} times in a row: "
                f"{failures.reason}. It is tried again with growing pauses, epochs go on"
            )
            yield StatusWarning(WarningKind.SERVICE_FAILS, text)
        for why in state.held_back:
            yield StatusWarning(WarningKind.SERVICE_HELD_BACK, f"{state.kind} is held back: {why}")
    for text in own.behind:
        yield StatusWarning(WarningKind.SERVICES_BEHIND, f"table services are behind: {text}")


def _of(timeline: Timeline, files: int) -> TimelineState:
    return TimelineState(
        files,
        [instant.file_name for instant in timeline.pending(*_SERVICES)],
        timeline.latest_completion(Action.COMPACTION),
        timeline.latest_completion(Action.CLEAN),
    )


def _files(storage: Storage, root: str) -> int:
    return sum(parse_file_name(name) is not None for name in storage.names(f"{root}/timeline"))


def _warnings(what: str, files: int, own: OwnServices) -> list[str]:
    if files <= _TIMELINE_FILES_WARN:
        return []
    if own.enabled:
        do = "archival does not keep up, `tidemark services list` says what holds it back"
    else:
        do = f"set table_services.enabled, or let {RUN_BY_OTHERS} compact and archive it"
    return [f"the {what}'s timeline has {files} files: {do}"]
