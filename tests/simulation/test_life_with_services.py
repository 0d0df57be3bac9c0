"""A table lives with all its services: nothing grows, nothing is lost, caches beside it answer right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.lived_table import LivedTable
from tests.simulation.scripted_tagger import SHARDS
from tests.soak.bounds import unsettled
from tests.soak.table_gauge import most_logs
from tests.unit.index_assigner.index_world import Assigner
from tidemark.commit_coordinator.table_services import archivals
from tidemark.config.table_services_model import (
    ArchiveConfig,
    CleanConfig,
    DataCompactionConfig,
    IndexCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind
from tidemark.hudi_format.commit.instants import create_requested
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation
from tidemark.hudi_format.table_services.records import requested_compaction
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.service_records import encode_compaction_plan
from tidemark.table_verification.verify import verify_table

TRIGGER, TRIGGER_INDEX = 10, 15
RETAIN_S = 15
# The index's timeline goes back to the compaction before the data table's first write: it takes some rounds
# until it is as long as it gets. In 500 seconds it had at most 225 files, 216 in the first 130 seconds.
SETTLED_S, SECONDS = 140, 240


def config(retain_s: int = RETAIN_S) -> TableServicesConfig:
    return TableServicesConfig(
        enabled=True,
        compact_data=DataCompactionConfig(log_files=TRIGGER, min_interval_ms=3_000),
        compact_index=IndexCompactionConfig(log_files=TRIGGER_INDEX, log_ratio=100.0, min_interval_ms=5_000),
        clean=CleanConfig(retain_ms=retain_s * 1_000, interval_ms=6_000),
        index_retain_ms=retain_s * 1_000,
        archive=ArchiveConfig(min=10, max=14, batch=2),
    )


class _Caches:
    """The table as `Assigner` needs it."""

    def __init__(self, life: LivedTable) -> None:
        self.storage: LocalStorage = life.storage
        self.shards = SHARDS

    def snapshot(self) -> MetadataTableSnapshot:
        return MetadataTableSnapshot.load(self.storage)


def opened(life: LivedTable, folder: Path) -> Assigner:
    """A process that begins, with what its folder has."""
    return Assigner(_Caches(life), folder, ordered=False).open(life.state().known())  # type: ignore[arg-type]


def answers(life: LivedTable, one: Assigner) -> dict[str, int]:
    return {key: found.group for key, found in one.ask(life.keys).items() if found.group is not None}


def test_nothing_grows_and_every_service_does_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After a look that finds nothing archival rests for 30 seconds: three times what a timeline keeps here.
    monkeypatch.setattr(archivals, "_LOOK_MS", 3_000)
    life = LivedTable(tmp_path / "t", config(), groups=3, keys=30, seed=1)
    stats: dict[str, list[float | None]] = {}
    for _ in range(SECONDS // 5):
        for _ in range(5):
            life.second()
        for name, value in life.stats().items():
            stats.setdefault(name, []).append(value)
    slices = [stats.pop(name) for name in sorted(stats) if name.startswith("slices: ")]
    assert all(value is not None and value < 2 * TRIGGER_INDEX for of_slice in slices for value in of_slice)
    assert list(unsettled(stats, SETTLED_S // 5)) == []
    kinds = {planned.kind for planned in life.planned_services().values()}
    assert kinds == set(ServiceKind) - {ServiceKind.ROLLBACK}
    assert all(isinstance(end, ServiceCommitted) for end in life.ended().values())
    life.settle()
    assert life.rows() == life.model
    assert verify_table(life.storage, lambda _: None).agrees


@pytest.mark.parametrize("retain_s", [1, RETAIN_S])
def test_caches_answer_right_beside_compaction_clean_and_archival(tmp_path: Path, retain_s: int) -> None:
    """One process comes and goes, one stays open over many compactions, one was away for long."""
    life = LivedTable(tmp_path / "t", config(retain_s), groups=3, keys=30, seed=2)
    for _ in range(3):
        life.second()
    life.settle()
    opened(life, tmp_path / "away").close()
    stays, then = opened(life, tmp_path / "stays"), dict(life.places)
    for _ in range(8):
        for _ in range(4):
            life.second()
        life.settle()
        assert answers(life, stays) == then
        comes = opened(life, tmp_path / "comes")
        assert answers(life, comes) == life.places
        comes.close()
    away = opened(life, tmp_path / "away")
    assert answers(life, away) == life.places
    for one in (stays, away):
        one.close()


def test_no_slice_exceeds_three_times_its_trigger_however_slow_the_workers_are(tmp_path: Path) -> None:
    life = LivedTable(tmp_path / "t", config(), groups=4, keys=30, seed=3, task_s=40.0)
    for _ in range(90):
        life.second()
        assert most_logs(newest_slices(life)) <= 3 * TRIGGER
    assert life.rests > 0
    life.settle()
    assert life.rows() == life.model


def test_what_another_engine_planned_to_compact_stops_no_tagging_and_no_compaction(tmp_path: Path) -> None:
    """It never carries the plan out, and we leave its file groups to it: they get longer than the bound, and
    the others do not.
    """
    one = replace(config(), compact_data=replace(config().compact_data, max_groups=1))
    life = LivedTable(tmp_path / "t", one, groups=3, keys=30, seed=4)
    for _ in range(5):
        life.second()
    life.settle()
    planned = newest_slices(life)[0]
    plan_compaction(life, planned)
    before = life.state().committed.epoch
    for _ in range(8 * TRIGGER):
        life.second()
        others = [each for each in newest_slices(life) if each.file_id != planned.file_id]
        assert most_logs(others) <= 3 * TRIGGER
    assert life.rests == 0
    assert life.state().committed.epoch - before > 7 * TRIGGER
    assert most_logs(newest_slices(life)) > 3 * TRIGGER
    life.settle()
    assert life.rows() == life.model


def plan_compaction(life: LivedTable, file_slice: FileSlice) -> None:
    """Another engine plans a compaction of the slice, and dies."""
    instant = instant_from_ms(life.clock.now_ms())
    operation = MergeOperation(
        file_slice.partition_path,
        file_slice.file_id,
        file_slice.base_instant,
        file_slice.base_file,
        file_slice.log_files,
        1,
        1,
    )
    plan = CompactionPlan(instant, False, life.schema.avro_json, (operation,))
    content = encode_compaction_plan(requested_compaction(plan))
    create_requested(Unfenced(life.storage), instant, Action.COMPACTION, content)
    life.clock.advance(1.0)


def newest_slices(life: LivedTable) -> list[FileSlice]:
    view = TableView.load(life.storage)
    return view.slices({day: [info.name for info in life.storage.list(day)] for day in ("d0", "d1", "d2")})
