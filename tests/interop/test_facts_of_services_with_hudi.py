"""What hudi_format/TABLE_SERVICES.md says of Hudi, our services rely on, and no other test shows: what Hudi
writes or deletes by itself, and what it makes of a table when a rule is broken.

All of it is `make services-interop` (TIDEMARK_SERVICES=all); `make interop` draws a few such cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from tests.interop.judge import HudiJudge
from tests.interop.served_story import (
    ARCHIVE,
    CLEAN_DATA,
    INDEX,
    act,
    archived,
    compact,
    every_case,
    free_lock,
    go_on,
    holds,
    instants,
    old_story,
    spark_of,
)
from tests.interop.spark_operations import COMPACTS_INDEX
from tests.service_actions import DiedError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.archivals import Archive
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.table_services.archiving import history_of
from tidemark.hudi_format.timeline import DATA_ROOT, Action, Instant, State, load_timeline
from tidemark.hudi_format.timeline.clean_records import decode_clean_plan

pytestmark = [pytest.mark.spark, pytest.mark.slow, every_case]


def test_hudis_clean_names_the_savepoints_in_its_plan(judge: HudiJudge, tmp_path: Path) -> None:
    """Section 3.1."""
    story = old_story(tmp_path)
    spark = spark_of(judge, story)
    saved = instants(story)[-1]
    spark.savepoint(saved)
    compact(story)
    spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)
    clean = load_timeline(story.storage).completed(Action.CLEAN)[-1]
    path = instant_path(Instant(clean.requested, Action.CLEAN, State.REQUESTED))
    plan = decode_clean_plan(story.storage.read(path), path)
    assert plan.extra_metadata == {"savepointed_timestamps": saved}
    spark.close()


def test_hudi_makes_no_savepoint_beside_a_pending_clean_without_an_instant(
    judge: HudiJudge, tmp_path: Path
) -> None:
    """Section 3.3. A coordinator died within a clean beside a compaction that Spark planned."""
    story = old_story(tmp_path)
    spark = spark_of(judge, story)
    compact(story)
    story.commit((1, 40))
    spark.compaction("schedule")
    story.commit((2, 41))
    story.served.list_files()
    story.served.dies_at(CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT)
    with pytest.raises(DiedError):
        story.served.act(CLEAN_DATA)
    free_lock(story)
    clean = next(each for each in load_timeline(story.storage).pending() if each.action is Action.CLEAN)
    path = instant_path(Instant(clean.requested, Action.CLEAN, State.REQUESTED))
    assert decode_clean_plan(story.storage.read(path), path).retained is None
    with pytest.raises(Py4JJavaError, match="NullPointerException"):
        spark.savepoint(instants(story)[-1])
    go_on(story, CLEAN_DATA)
    spark.savepoint(instants(story)[-1])
    holds(judge, story)
    spark.compaction("execute")
    spark.close()
    holds(judge, story)


def test_a_replacecommit_that_is_archived_too_early_brings_its_rows_back(
    judge: HudiJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4: why archival asks for their files."""
    story = old_story(tmp_path)
    spark = spark_of(judge, story)
    compact(story)
    former = {key for key, row in story.live.items() if row[0] == "eu"}
    spark.write(story.changed((6, 90)), "insert_overwrite")
    for n in (1, 3, 5):
        story.commit((n,))
    act(story, INDEX)
    before = {row["id"] for row in judge.snapshot(story.path)}
    assert former - before
    monkeypatch.setattr(Archive, "_is_gone", lambda *_: True)
    act(story, ARCHIVE)
    assert former <= {row["id"] for row in judge.snapshot(story.path)}
    assert former <= {row["id"] for row in judge.snapshot(story.path, metadata=False)}
    spark.close()


def test_hudis_archival_deletes_archive_files_that_no_manifest_names(
    judge: HudiJudge, tmp_path: Path
) -> None:
    """Section 6.2: one that was written ahead may be gone when its manifest is due."""
    story = old_story(tmp_path)
    spark = spark_of(judge, story)
    act(story, ARCHIVE)
    history = story.path / history_of(DATA_ROOT)
    ahead = history / "20200101000000000_20200101000000001_0.parquet"
    ahead.write_bytes(next(history.glob("*.parquet")).read_bytes())
    for n in range(5):
        before = archived(story)
        for key in range(3):
            spark.write(story.changed((key, 100 * n + key + 50)), "upsert", **COMPACTS_INDEX)
        compact(story)
        spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)
        spark.archive(2, 3)
        assert archived(story) > before
    assert not ahead.exists()
    spark.close()
