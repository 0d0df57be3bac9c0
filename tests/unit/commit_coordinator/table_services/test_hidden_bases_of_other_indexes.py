"""Another engine's build hides base files of a secondary index or of column stats as well, and a compaction
behind it may pass over them: the index lacks entries then, and is taken out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.commit_coordinator.table_services.archived_bases import (
    bases_that_count,
    build_of_another_index,
    check_hidden,
    rows_updated_alone,
)
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.commit.hidden_bases import HiddenBases
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import (
    column_stats_definition,
    read_index_definitions,
    secondary_index_definition,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.archived_bases import compacted_without, hidden_bases
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats, write_own_folder
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.table_config import read_table_config, update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline

SECONDARY = "secondary_index_by_region"
STATS = "column_stats"
BOTH = pytest.mark.parametrize("name", [SECONDARY, STATS])


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return rows_updated_alone(tmp_path_factory.mktemp("hidden"))


@pytest.fixture
def story(archived: Story, tmp_path: Path) -> Story:
    """Behind the other engine's build. Both indexes have two groups, of which only base files are there, of a
    compaction that is hidden.
    """
    story = archived.copy(tmp_path / "t")
    build_of_another_index(story, completion=story.writer._instants.next())
    assert bases_that_count(story) == 0
    storage = story.storage
    definitions = {
        **read_index_definitions(storage),
        SECONDARY: secondary_index_definition(SECONDARY, "region"),
        STATS: column_stats_definition(["name"]),
    }
    write_index_definitions(storage, definitions)
    listed = f"column_stats,files,record_index,{SECONDARY}"
    update_properties(storage, {keys.METADATA_PARTITIONS: listed})
    write_own_folder(storage, "00000000000000003", ["name"], {"name": "STRING"})
    for name in (SECONDARY, STATS):
        for group in (0, 1):
            base_file(story, name, group, hidden_instant(story))
    return story


def hidden_instant(story: Story) -> str:
    return hidden_bases(story.storage, also_half=False)[-1].requested


def base_file(story: Story, name: str, group: int, instant: str) -> str:
    file_id = "col-stats" if name == STATS else name.replace("_", "-")
    file = f"{file_id}-{group:04d}-0_0-0-0_{instant}.hfile"
    story.storage.create(f".hoodie/metadata/{name}/{file}", b"#")
    return file


def compact_by_other(story: Story, name: str) -> str:
    """Its compaction of the first group, behind the build. Returns the new base file."""
    instant, completion = story.writer._instants.next(), story.writer._instants.next()
    for file in (
        f"{instant}.compaction.requested", f"{instant}.compaction.inflight", f"{instant}_{completion}.commit",
    ):  # fmt: skip
        story.storage.create(f"{METADATA_TABLE_ROOT}/timeline/{file}", b"")
    return base_file(story, name, 0, instant)


def lost(story: Story) -> dict[str, list[str]]:
    build = newest_build(load_timeline(story.storage, METADATA_TABLE_ROOT))
    return compacted_without(story.storage, build, hidden_bases(story.storage, also_half=False))


@BOTH
def test_a_group_that_was_compacted_without_its_hidden_file_is_named(story: Story, name: str) -> None:
    assert lost(story) == {}
    new = compact_by_other(story, name)
    assert lost(story) == {name: [new]}


@BOTH
def test_what_a_compaction_that_never_completed_left_hides_nothing(story: Story, name: str) -> None:
    """Its base file is newer than the one that counts, and of an instant that is in no archive."""
    folder = f".hoodie/metadata/{name}"
    for file in story.storage.names(folder):
        if hidden_instant(story) in file:
            story.storage.delete(f"{folder}/{file}")
    base_file(story, name, 0, "00000000000000005")
    base_file(story, name, 0, str(int(hidden_instant(story)) + 1))
    compact_by_other(story, name)
    assert lost(story) == {}


def test_a_secondary_index_that_lacks_entries_is_taken_out(story: Story) -> None:
    new = compact_by_other(story, SECONDARY)
    noted: dict[str, str] = {}
    with pytest.raises(AttemptLostError) as error:
        check_hidden(story, HiddenBases(noted.__setitem__), generation=3)
    assert error.value.rewind
    assert read_table_config(story.storage).metadata_partitions == {"column_stats", "files", "record_index"}
    assert SECONDARY not in read_index_definitions(story.storage)
    assert noted.keys() == {SECONDARY}
    assert f"({new} lacks entries)" in noted[SECONDARY]
    assert "`tidemark index create by_region --column region` makes it again" in noted[SECONDARY]
    assert bases_that_count(story) > 0, "the rest is put back"
    assert lost(story) == {}
    assert foreign_stats(story.storage, read_table_config(story.storage)) is None, "these lack nothing"


def test_column_stats_that_lack_records_are_not_ours_any_more(story: Story) -> None:
    """The next look at what the table lists takes them out."""
    compact_by_other(story, STATS)
    with pytest.raises(AttemptLostError):
        check_hidden(story, HiddenBases(), generation=3)
    found = foreign_stats(story.storage, read_table_config(story.storage))
    assert found is not None
    assert found.names == {STATS}
    assert "hid files of this one, and compacted it without them" in found.reason
    assert SECONDARY in read_index_definitions(story.storage)


def test_a_record_index_that_lacks_entries_stops_behind_what_is_taken_out(story: Story) -> None:
    """The rebuilt record index would not show any more what the others lack."""
    compact_by_other(story, SECONDARY)
    hidden = hidden_instant(story)
    names = story.storage.names(".hoodie/metadata/record_index")
    old = next(file for file in names if file.endswith(f"{hidden}.hfile"))
    newest = load_timeline(story.storage, METADATA_TABLE_ROOT).completed()[-1].requested
    story.storage.create(f".hoodie/metadata/record_index/{old.replace(hidden, newest)}", b"#")
    with pytest.raises(UnsupportedTableError, match="compacted the record index without them"):
        check_hidden(story, HiddenBases(), generation=3)
    assert SECONDARY not in read_table_config(story.storage).metadata_partitions
