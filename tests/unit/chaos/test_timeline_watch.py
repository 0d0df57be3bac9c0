"""The watcher of the kill campaign sees gaps, overlaps, commits without a metadata commit, and lost ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.chaos.timeline_watch import BrokenTimelineError, TimelineWatch, pending
from tests.unit.chaos.archives import archive, leave

_STAT = {"type": "record", "name": "stat", "fields": [{"name": "path", "type": "string"}]}
_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "commit",
        "fields": [
            {"name": "extraMetadata", "type": {"type": "map", "values": "string"}},
            {
                "name": "partitionToWriteStats",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": _STAT}}],
            },
            {"name": "operationType", "type": ["null", "string"], "default": None},
        ],
    }
)


class Timelines:
    """Completed commits as files, number n at instant n."""

    def __init__(self, table: Path) -> None:
        self.data = table / ".hoodie/timeline"
        self.metadata = table / ".hoodie/metadata/.hoodie/timeline"
        for folder in (self.data, self.metadata):
            folder.mkdir(parents=True)

    def commit(self, number: int, first: int, following: int, *, epoch: int = 0, late: int = 5) -> None:
        """The metadata commit completes at number*10 + 1, the data at number*10 + `late`."""
        for folder, minute in ((self.metadata, 1), (self.data, late)):
            extra = {
                "tidemark.epoch": str(epoch or number),
                "tidemark.keyed_offsets": json.dumps({"t.keyed": {"0": [first, following]}}),
                "tidemark.source_offsets": json.dumps({"t": {"0": [first, following]}}),
                "tidemark.records": json.dumps({"input": following - first}),
            }
            _write(folder / _name(number, minute), extra)

    def repair(self, number: int, *, files: tuple[str, ...] = ()) -> Path:
        """What `tidemark index repair` commits to the data table, first of all; returns the file."""
        file = self.data / _name(number, 5)
        _write(file, {"tidemark-repair": f"secondary_index_by_name {number * 10 + 1:017}"}, files)
        return file

    def end_repair(self, number: int) -> None:
        """Its commit to the metadata table, which comes behind."""
        _write(self.metadata / _name(number, 1), {})


def _name(number: int, minute: int) -> str:
    return f"{number * 10:017}_{number * 10 + minute:017}.deltacommit"


def _write(file: Path, extra: dict[str, str], files: tuple[str, ...] = ()) -> None:
    stats = {"p": [{"path": path} for path in files]} if files else None
    with file.open("wb") as out:
        fastavro.writer(out, _SCHEMA, [{"extraMetadata": extra, "partitionToWriteStats": stats}])


@pytest.fixture
def timelines(tmp_path: Path) -> Timelines:
    return Timelines(tmp_path)


def test_commits_that_continue_one_another_are_taken(timelines: Timelines, tmp_path: Path):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    watch.look()
    timelines.commit(2, 10, 15)
    timelines.commit(3, 20, 21, epoch=5)
    watch.look()
    assert (watch.epoch, watch.jumps, watch.source_next()) == (5, 2, {0: 21})
    assert [commit.records for commit in watch.commits] == [10, 5, 1]


def test_a_compaction_beside_the_epochs_is_no_epoch(timelines: Timelines, tmp_path: Path):
    timelines.commit(1, 0, 10)
    timelines.commit(2, 10, 15)
    compaction = f"{15:017}"
    (timelines.data / f"{compaction}.compaction.requested").touch()
    (timelines.data / f"{compaction}_{16:017}.commit").write_bytes(b"whatever")
    watch = TimelineWatch(tmp_path)
    watch.look()
    assert watch.epoch == 2


def test_a_repair_of_an_index_is_no_epoch_and_stays_on_the_timeline(timelines: Timelines, tmp_path: Path):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    repair = timelines.repair(2)
    watch.look()
    timelines.commit(3, 10, 15, epoch=2)
    watch.look()
    assert (watch.epoch, watch.jumps) == (2, 0)
    repair.unlink()
    with pytest.raises(BrokenTimelineError, match="vanished"):
        watch.look()


def test_a_repair_without_its_metadata_commit_is_found_in_the_end(timelines: Timelines, tmp_path: Path):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    timelines.repair(2)
    watch.look()
    watch.stop()
    assert len(watch.failures) == 1
    assert f"repairs without a metadata commit: ['{20:017}']" in watch.failures[0]
    timelines.end_repair(2)
    watch.failures.clear()
    watch.stop()
    assert watch.failures == []


def test_a_repair_that_names_data_files_is_found(timelines: Timelines, tmp_path: Path):
    timelines.repair(1, files=("p/f.parquet",))
    with pytest.raises(BrokenTimelineError, match="is a repair, and names"):
        TimelineWatch(tmp_path).look()


@pytest.mark.parametrize("first", [9, 11])
def test_gap_or_overlap_between_consecutive_epochs_is_found(timelines: Timelines, tmp_path: Path, first: int):
    timelines.commit(1, 0, 10)
    timelines.commit(2, first, 15)
    with pytest.raises(BrokenTimelineError, match="ended at 10"):
        TimelineWatch(tmp_path).look()


def test_data_commit_before_its_metadata_commit_is_found(timelines: Timelines, tmp_path: Path):
    timelines.commit(1, 0, 10, late=0)
    with pytest.raises(BrokenTimelineError, match="before its metadata"):
        TimelineWatch(tmp_path).look()
    for file in timelines.metadata.iterdir():
        file.unlink()
    with pytest.raises(BrokenTimelineError, match="is not there"):
        TimelineWatch(tmp_path).look()


def test_commit_that_appears_before_the_last_one_is_found(timelines: Timelines, tmp_path: Path):
    watch = TimelineWatch(tmp_path)
    timelines.commit(2, 0, 10)
    watch.look()
    timelines.commit(1, 0, 10, epoch=3)
    with pytest.raises(BrokenTimelineError, match="came after"):
        watch.look()


def test_commit_that_vanishes_is_found(timelines: Timelines, tmp_path: Path):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    watch.look()
    for file in timelines.data.iterdir():
        file.unlink()
    with pytest.raises(BrokenTimelineError, match="vanished"):
        watch.look()


def test_instant_that_never_ended_is_pending(timelines: Timelines, tmp_path: Path):
    timelines.commit(1, 0, 10)
    (timelines.data / f"{7:017}.deltacommit.inflight").touch()
    assert pending(tmp_path) == {f"{7:017}"}


def _archived(timelines: Timelines, *, names_it: bool = True) -> list[Path]:
    """All completed commits are in the archive of their timeline; the files."""
    both = []
    for folder in (timelines.data, timelines.metadata):
        files = sorted(folder.glob("*_*.deltacommit"))
        archive(folder, files, names_it=names_it)
        both += files
    return both


@pytest.mark.parametrize("names_it", [True, False])
def test_commit_that_is_archived_is_not_lost(timelines: Timelines, tmp_path: Path, names_it: bool):
    """`names_it`: else the archiver is about to write `_version_`, or died before it."""
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    watch.look()
    leave(_archived(timelines, names_it=names_it))
    timelines.commit(2, 10, 15)
    watch.look()
    assert [commit.epoch for commit in watch.commits] == [1, 2]


def test_commit_that_left_the_timeline_beside_an_archive_without_it_is_found(
    timelines: Timelines, tmp_path: Path
):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    _archived(timelines)
    timelines.commit(2, 10, 15)
    watch.look()
    leave(sorted(timelines.data.glob("*_*.deltacommit")))
    with pytest.raises(BrokenTimelineError, match=f"vanished.*'{20:017}'"):
        watch.look()


def test_commit_that_is_archived_before_it_was_seen_is_taken_from_the_archive(
    timelines: Timelines, tmp_path: Path
):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    watch.look()
    timelines.commit(2, 10, 15)
    leave(_archived(timelines))
    timelines.commit(3, 15, 20)
    watch.look()
    assert [commit.records for commit in watch.commits] == [10, 5, 5]


def test_gap_behind_an_archived_commit_is_found(timelines: Timelines, tmp_path: Path):
    watch = TimelineWatch(tmp_path)
    timelines.commit(1, 0, 10)
    watch.look()
    timelines.commit(2, 11, 15)
    leave(_archived(timelines))
    with pytest.raises(BrokenTimelineError, match="ended at 10"):
        watch.look()


def test_a_compaction_whose_plan_left_the_timeline_before_it_is_no_epoch(
    timelines: Timelines, tmp_path: Path
):
    """Archival deletes the files of a pending instant first."""
    timelines.commit(1, 0, 10)
    with (timelines.data / f"{15:017}_{16:017}.commit").open("wb") as out:
        document: dict[str, Any] = {"extraMetadata": {}, "operationType": "COMPACT"}
        fastavro.writer(out, _SCHEMA, [document])
    watch = TimelineWatch(tmp_path)
    watch.look()
    watch.look()
    assert [commit.epoch for commit in watch.commits] == [1]
