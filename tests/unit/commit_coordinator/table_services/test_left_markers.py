"""Markers that dead writers left: what they name goes before them, where it never completed, and stays with
them where nobody can tell.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.commit_coordinator.table_services.story import ARROW, Story
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.markers import MarkerType, create_marker, marker_folder
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline

OLD = "20200101000000000"


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = Story(tmp_path / "t")
    made.serve()
    return made


def late_file(story: Story, instant: str, root: str = DATA_ROOT) -> str:
    """An executor announces a file of the instant, and makes it."""
    folder, ending = ("eu", "parquet") if root == DATA_ROOT else ("record_index", "hfile")
    path = f"{folder}/{'0' * 8}-0000-4000-8000-{'0' * 12}-0_0-0-0_{instant}.{ending}"
    create_marker(Unfenced(story.storage), instant, path, MarkerType.CREATE, root)
    placed = path if root == DATA_ROOT else join_path(METADATA_TABLE_PATH, path)
    story.storage.create(placed, b"PAR1")
    return placed


def is_there(story: Story, path: str, instant: str, root: str = DATA_ROOT) -> tuple[bool, bool]:
    """Whether the file is there, and whether markers are."""
    return story.storage.exists(path), bool(story.storage.walk(marker_folder(instant, root)))


def rolled_back(story: Story) -> str:
    """A write of another engine, whose driver is cut off; its rollback is on the timeline."""
    row = {"id": "z", "region": "eu", "ts": 99, "name": "z"}
    requested = story.writer.prepare(pa.Table.from_pylist([row], schema=ARROW)).instant.requested
    story.later()
    assert story.served.act(ServiceKind.ROLLBACK)
    return requested


@pytest.mark.parametrize("with_clean", [True, False])
def test_files_that_were_made_after_the_rollback_go_before_their_markers(story: Story, with_clean: bool):
    """With a clean that has files to delete they go in its sweep, else when it looks."""
    if with_clean:
        assert story.served.act(ServiceKind.COMPACT_INDEX)
        assert story.served.act(ServiceKind.COMPACT_DATA)
    dead = rolled_back(story)
    path = late_file(story, dead)
    now_s = story.clock.now_ms() / 1000
    os.utime(story.path / marker_folder(dead), (now_s, now_s))
    assert story.served.act(ServiceKind.CLEAN_DATA) is with_clean
    assert is_there(story, path, dead) == (True, True), "its executors may live"
    story.later()
    if with_clean:
        story.commit((1, 2))
        story.served.list_files()
        assert story.served.act(ServiceKind.COMPACT_DATA)
        story.later()
    assert story.served.act(ServiceKind.CLEAN_DATA) is with_clean
    assert is_there(story, path, dead) == (False, False)
    story.check()


@pytest.mark.parametrize("root", [DATA_ROOT, METADATA_TABLE_ROOT])
def test_files_of_an_instant_that_never_completed_go(story: Story, root: str):
    """Whoever rolled it back, and wherever that rollback is: it is younger than the timeline's start."""
    dead = story.writer._instants.next()
    path = late_file(story, dead, root)
    story.later()
    story.served.act(ServiceKind.CLEAN_DATA)
    assert is_there(story, path, dead, root) == (False, False)
    story.check()


def test_what_is_in_an_archive_stays_and_loses_its_markers(story: Story):
    """It completed: a base file that counts is there."""
    first = load_timeline(story.storage).completed(Action.DELTA_COMMIT)[0].requested
    [name] = [info.path for info in story.storage.list("eu") if info.name.endswith(f"_{first}.parquet")]
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    for _ in range(3):
        story.commit((1, 5))
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    while story.served.act(ServiceKind.ARCHIVE):
        pass
    timeline = load_timeline(story.storage)
    assert not timeline.contains(first)
    assert timeline.archive is not None
    assert timeline.archive.completion_time(first)
    create_marker(Unfenced(story.storage), first, name, MarkerType.CREATE)
    story.later()
    story.served.act(ServiceKind.CLEAN_DATA)
    assert is_there(story, name, first) == (True, False)
    story.check()


def test_where_nobody_can_tell_whether_it_completed_files_and_markers_stay(story: Story):
    path = late_file(story, OLD)
    story.later()
    story.served.act(ServiceKind.CLEAN_DATA)
    assert is_there(story, path, OLD) == (True, True)
    story.storage.delete(path)
    story.served.act(ServiceKind.CLEAN_DATA)
    assert is_there(story, path, OLD) == (False, False)


def test_markers_that_name_files_of_another_instant_are_left(story: Story, caplog: pytest.LogCaptureFixture):
    """They delete nothing, and hold up no clean."""
    caplog.set_level(logging.WARNING, "tidemark.coordinator")
    dead, other = story.writer._instants.next(), load_timeline(story.storage).completed()[-1].requested
    [foreign, *_] = [info.path for info in story.storage.list("eu") if f"_{other}." in info.name]
    create_marker(Unfenced(story.storage), dead, foreign, MarkerType.CREATE)
    story.later()
    story.served.act(ServiceKind.CLEAN_DATA)
    assert is_there(story, foreign, dead) == (True, True)
    assert "which is not of that instant" in caplog.text


def test_markers_of_a_counter_go_alone(story: Story):
    """Hudi gives a number to another build again, once the first one is archived."""
    counter = "00000000000000007"
    path = late_file(story, counter, METADATA_TABLE_ROOT)
    story.later()
    story.served.act(ServiceKind.CLEAN_DATA)
    assert is_there(story, path, counter, METADATA_TABLE_ROOT) == (True, False)
