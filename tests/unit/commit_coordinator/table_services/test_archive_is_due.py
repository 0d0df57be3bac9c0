"""When archival is due: by the writes on the timeline, whoever made them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    ARCHIVE,
    compacted_and_written_on,
    facts,
)
from tidemark.epoch_protocol.state import Committed


def rarely_archived(folder: Path) -> Story:
    """Its timeline is archived when it has more than 20 writes."""
    story = Story(folder / "t")
    story.serve()
    compacted_and_written_on(story)
    story.served.config = replace(
        story.served.config, archive=replace(story.served.config.archive, min=10, max=20, batch=5)
    )
    story.served.begin()
    return story


def test_it_is_due_by_the_number_of_commits_and_looks_again_after_a_while(tmp_path: Path) -> None:
    story = rarely_archived(tmp_path)
    handler, now_ms = story.served.handlers[ARCHIVE], story.clock.now_ms()
    assert handler.due(facts(story), now_ms), "nothing is known yet"
    assert not story.served.act(ARCHIVE)
    assert handler.due(facts(story), now_ms + 1) is None
    assert handler.due(facts(story), now_ms + 30_000) is None
    assert handler.due(facts(story), now_ms + 60_000) is not None


def test_commits_of_other_engines_count_from_the_look_of_an_epochs_plan_on(tmp_path: Path) -> None:
    """Whether or not an epoch of ours follows: beside a busy writer there may be none for long."""
    story = rarely_archived(tmp_path)
    handler, seen = story.served.handlers[ARCHIVE], story.served.state.seen
    later_ms = story.clock.now_ms() + 40_000
    assert seen is not None
    assert not story.served.act(ARCHIVE)
    times = [str(29990101000000000 + number) for number in range(16)]
    foreign = [f"{requested}_{requested}.commit" for requested in times]
    seen.look("", foreign[:14], [])
    assert handler.due(facts(story), later_ms) is None
    seen.look("", foreign[14:], [])
    assert handler.due(facts(story), later_ms) == "22 writes are on the timeline"
    story.served.state.seen = None
    story.served.state.committed = Committed(epoch=0)
    assert handler.due(facts(story), later_ms) is None, "a new count begins with the next look"
