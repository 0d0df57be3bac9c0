"""What archival leaves on the metadata table's timeline for savepoints that are made later."""

from __future__ import annotations

from pathlib import Path

from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    ARCHIVE,
    CLEANS,
    COMPACTIONS,
    active,
    compacted_and_written_on,
)
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline


def test_a_compaction_of_the_index_from_before_all_active_commits_stays(tmp_path: Path) -> None:
    """Without it Hudi's restore to one of them leaves a wrong index."""
    story = compacted_and_written_on(Story(tmp_path / "made").copy(tmp_path / "t")).copy(tmp_path / "u")
    assert story.served.act(ARCHIVE)
    assert story.served.act(ARCHIVE)
    for n in (40, 41):
        story.commit((2, 5, n))
        story.later()
        story.served.list_files()
        for kind in (*COMPACTIONS, *CLEANS, ARCHIVE):
            assert story.served.act(kind), kind
        goes = story.served.act(ARCHIVE)
        assert goes is (n == 41)
        first = active(story)[0]
        compactions = load_timeline(story.storage, METADATA_TABLE_ROOT).completed(Action.COMPACTION)
        assert compactions[0].requested < first < compactions[-1].requested
        story.check()
