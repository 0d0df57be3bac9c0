"""Another engine makes a savepoint after a clean or an archival was planned: what it keeps is not taken.

`make services-interop` has Hudi make it, and restore to it later.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hudi_rules.documents import encode
from tests.interop.read_table import ReadTable
from tests.unit.commit_coordinator.table_services.story import Story
from tests.unit.commit_coordinator.table_services.test_archive_handler import (
    ARCHIVE,
    CLEANS,
    COMPACTIONS,
    active,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.timeline import DATA_ROOT

Kept = dict[str, list[str]]


def save(story: Story, instant: str, kept: Kept) -> None:
    """The savepoint of a commit, whose slices have these files: partition -> names."""
    document = {
        "savepointedBy": "",
        "savepointedAt": 0,
        "comments": "",
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": names}
            for partition, names in kept.items()
        },
        "version": 1,
    }
    timeline = story.path / DATA_ROOT / "timeline"
    (timeline / f"{instant}.savepoint.inflight").touch()
    completed = timeline / f"{instant}_{int(active(story)[-1]) + 1}.savepoint"
    completed.write_bytes(encode("savepoint", document))


def files_of_slices(story: Story) -> Kept:
    """What a savepoint of the newest commit names."""
    kept: Kept = {}
    for each in ReadTable(story.path).slices():
        kept.setdefault(each.partition_path, []).extend(filter(None, (each.base_file, *each.log_files)))
    return kept


def there(story: Story) -> set[str]:
    """Files of both tables, and instants of the active timeline."""
    return {*story.table_files(), *active(story)}


@pytest.fixture(scope="module")
def written_on(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, str, Kept]:
    """A table whose slices of the third commit are superseded, in both tables."""
    folder = tmp_path_factory.mktemp("written_on")
    story = Story(folder / "made").copy(folder / "t")
    assert story.served.act(ServiceKind.COMPACT_INDEX)
    story.commit((1, 30))
    saved, kept = active(story)[-1], files_of_slices(story)
    for n in (40, 41):
        story.commit((2, n))
        story.served.list_files()
        assert all(story.served.act(kind) for kind in COMPACTIONS)
    story.commit((3, 42))
    story.later()
    return story.forget_coordinator(), saved, kept


@pytest.mark.parametrize("kind", [*CLEANS, ARCHIVE])
def test_what_a_savepoint_keeps_stays_though_the_plan_names_it(
    written_on: tuple[Story, str, Kept], tmp_path: Path, kind: ServiceKind
) -> None:
    made, saved, kept = written_on
    gone = {}
    for is_saved in (False, True):
        story = made.copy(tmp_path / str(is_saved))
        story.served.list_files()
        before = there(story)
        assert story.served.plan(kind), story.served.dropped
        if is_saved:
            save(story, saved, kept)
        assert not story.served.decide(kind) or story.served.sweep(kind)
        gone[is_saved] = before - there(story)
        story.check()
    assert gone[False] > gone[True], "the savepoint keeps some of it"
    needed = {f"{partition}/{name}" for partition, names in kept.items() for name in names}
    assert not gone[True] & {*needed, saved}
