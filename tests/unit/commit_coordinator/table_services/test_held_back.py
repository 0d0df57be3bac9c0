"""What holds services back beside the build of an index by another engine, and times that are no dates."""

from __future__ import annotations

import pytest

from tests.unit.commit_coordinator.table_services.test_shown_services import NOW_MS, commits, time_of
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.table_services.held_back import held_back
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline

HOUR_MS = 3_600_000
BUILD = Instant("00000000000000005", Action.DELTA_COMMIT, State.INFLIGHT)
COMPACTION = Instant(time_of(5), Action.COMPACTION, State.COMPLETED, time_of(4))


def held(
    data: list[Instant], metadata: list[Instant], *, build_ms: int = 2 * HOUR_MS
) -> dict[ServiceKind, list[str]]:
    both = Timelines(Timeline(tuple(data)), Timeline((*metadata, COMPACTION)))
    return held_back(both, TableServicesConfig(), (), NOW_MS, index_build_ms=build_ms)


@pytest.mark.parametrize("time", [BUILD.requested, "20261399000000000"])
def test_an_instant_whose_time_is_no_date_silences_nothing(time: str) -> None:
    """It raised, and what held any kind back was not known any more."""
    savepoint = Instant(time_of(650), Action.SAVEPOINT, State.COMPLETED, time_of(640))
    rows = sorted([*commits(701), savepoint], key=lambda each: each.requested)
    odd = Instant(time, Action.DELTA_COMMIT, State.INFLIGHT)
    found = held(rows, [odd])
    assert found[ServiceKind.ARCHIVE] == [
        f"savepoint {savepoint.requested}: it and what is newer stays on the timeline"
    ]
    text = f"{odd.file_name} of another writer is pending: files of that time stay"
    assert found.get(ServiceKind.CLEAN_DATA) == (None if odd == BUILD else [text])


def test_what_is_pending_on_the_metadata_tables_timeline_holds_its_archival() -> None:
    """A build of an index, or a clean of an engine that died; where the timeline is short, nothing."""
    text = f"metadata table: {BUILD.file_name} of another writer is pending"
    assert held(commits(3), [BUILD, *commits(701)]) == {ServiceKind.ARCHIVE: [text]}
    assert held(commits(3), [BUILD, *commits(600)]) == {}
    cleaning = Instant(time_of(720), Action.CLEAN, State.INFLIGHT)
    text = f"metadata table: {cleaning.file_name} of another writer is pending since 12 min"
    assert held(commits(3), [cleaning, *commits(701)]) == {ServiceKind.ARCHIVE: [text]}


def test_cleans_are_held_back_by_writes_and_by_living_builds_alone() -> None:
    """Whatever else is pending keeps no file."""
    others = [
        Instant(time_of(9_000 + n), action, State.INFLIGHT)
        for n, action in enumerate((Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING))
    ]
    assert held(others, []) == {}
    indexing = Instant(time_of(4_000), Action.INDEXING, State.INFLIGHT)
    text = f"{indexing.file_name} of another writer is pending since 66 min: files of that time stay"
    assert held([indexing], []) == {ServiceKind.CLEAN_DATA: [text]}
    assert held([indexing], [], build_ms=HOUR_MS) == {}, "who builds for so long is dead"
