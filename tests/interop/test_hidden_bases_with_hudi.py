"""CREATE INDEX of Hudi on Spark hides base files of the record index whose compactions are archived. Hudi
finds all keys again, and doubles none, once a coordinator has put their instants back.

All of it is `make services-interop` (TIDEMARK_SERVICES=all); `make interop` draws a few such cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.judge import HudiJudge
from tests.interop.served_story import (
    ARCHIVE,
    INDEX,
    act,
    compact,
    every_case,
    free_lock,
    holds,
    may_act,
    spark_of,
    spark_upserts_beside_us,
    story_of,
)
from tests.unit.commit_coordinator.table_services.archived_bases import bases_that_count, check_hidden
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.commit.hidden_bases import HiddenBases
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.commit_coordinator.table_services import archivals
from tidemark.hudi_format.table_config import TableType

pytestmark = [pytest.mark.spark, pytest.mark.slow, every_case]


def updated_alone(path: Path, table_type: TableType) -> Story:
    """The newest compaction of the record index is in the archive: nothing was written to it since."""
    story = story_of(path, table_type)
    compact(story)
    for _ in range(3):
        story.commit((1, 3))
        story.commit((4, 6))
        act(story, INDEX)
    may_act(story, *[ARCHIVE] * 4)
    return story


@pytest.mark.parametrize("table_type", TableType)
def test_spark_finds_all_keys_once_hidden_base_files_count_again(
    judge: HudiJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: TableType
) -> None:
    monkeypatch.setattr(archivals, "under_slices", lambda *_: set())
    story = updated_alone(tmp_path, table_type)
    holds(judge, story)
    spark = spark_of(judge, story)
    spark.create_index("by_name", "name")
    spark.close()
    assert bases_that_count(story) == 0
    assert judge.record_index(story.path).keys() < story.live.keys(), "Hudi finds them: nothing is hidden"

    bases = HiddenBases()
    with pytest.raises(AttemptLostError):
        check_hidden(story, bases, generation=1)
    free_lock(story)
    holds(judge, story)
    check_hidden(story, bases, generation=2)
    free_lock(story)
    holds(judge, story)
    spark_upserts_beside_us(judge, story, 1, 7, 50)
    holds(judge, story)
    may_act(story, INDEX, ARCHIVE, ARCHIVE)
    holds(judge, story)
