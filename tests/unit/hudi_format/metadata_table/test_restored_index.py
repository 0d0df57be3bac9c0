"""Whether a restore took the record index along: told by when the index was built."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from testing.memory_storage import InMemoryStorage
from tests.hudi_rules.documents import encode
from tests.unit.hudi_format.metadata_tables import write_archive
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import secondary_index_definition, write_index_definitions
from tidemark.hudi_format.metadata_table.own_stats import write_own_folder
from tidemark.hudi_format.metadata_table.restored_index import check_index_is_of_the_rows
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.service_records import decode_restored_instants

BOOTSTRAP = "00000000000000001"


def completed(requested: str, completion: str, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(requested, action, State.COMPLETED, completion)


def archive(completion: str, requested: str = BOOTSTRAP) -> ArchivedTimeline:
    """Of a timeline whose first commit, or whose bootstrap, is archived."""
    storage = InMemoryStorage()
    rows = [
        (requested, completion, "deltacommit", b""),
        ("20260101000000000", "20260101000000001", "deltacommit", b""),
    ]
    write_archive(storage, rows)
    return ArchivedTimeline(storage)


def restores(data: Timeline, took_back: Sequence[str] = ("20260102003000000",)) -> InMemoryStorage:
    """The files of the timeline's restores, each of which took these instants back."""
    storage = InMemoryStorage()
    for each in data.completed(Action.RESTORE):
        content = encode(
            "restore",
            {
                "startRestoreTime": each.requested,
                "timeTakenInMillis": 1,
                "instantsToRollback": list(took_back),
                "hoodieRestoreMetadata": {},
                "version": 1,
                "restoreInstantInfo": [],
            },
        )
        storage.create(instant_path(each), content)
    return storage


def at(minute: int) -> str:
    return f"202601020{minute // 60}{minute % 60:02d}00000"


# Commits at 10 and 20, one at 30 that was taken back by the restore of 50 to 60, one at 70.
KEPT = [completed(at(9), at(10)), completed(at(19), at(20))]
RESTORE = completed(at(50), at(60), Action.RESTORE)
LATER = completed(at(69), at(70))


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize(
    ("built", "is_of_the_rows"), [(5, True), (15, True), (45, False), (55, False), (65, True)]
)
def test_an_index_that_was_built_before_a_restore_took_commits_back_is_refused(
    built: int, is_of_the_rows: bool, archived: bool
) -> None:
    data = Timeline((*KEPT, RESTORE, LATER))
    own = completed(at(69), at(70))
    metadata = Timeline((own,), archive(at(built)))
    if not archived:
        metadata = Timeline((completed(BOOTSTRAP, at(built)), own))
    if is_of_the_rows:
        check_index_is_of_the_rows(restores(data), data, metadata)
        return
    with pytest.raises(UnsupportedTableError, match=f"restore {at(50)} .*{at(built)}.*double keys"):
        check_index_is_of_the_rows(restores(data), data, metadata)


@pytest.mark.parametrize("archived", [False, True])
def test_column_stats_that_were_built_meanwhile_say_nothing_of_the_record_index(archived: bool) -> None:
    stats = "00000000000000002"
    data, builds = Timeline((*KEPT, RESTORE, LATER)), (completed(BOOTSTRAP, at(5)), completed(stats, at(45)))
    metadata = Timeline(builds[:1], archive(at(45), stats)) if archived else Timeline(builds)
    storage = restores(data)
    with pytest.raises(UnsupportedTableError, match="double keys"):
        check_index_is_of_the_rows(storage, data, metadata)
    write_own_folder(storage, stats, ["a"], {})
    check_index_is_of_the_rows(storage, data, metadata)


@pytest.mark.parametrize("archived", [False, True])
def test_a_secondary_index_that_was_built_meanwhile_says_nothing_of_the_record_index(archived: bool) -> None:
    secondary, name = "00000000000000003", "secondary_index_city"
    builds = (completed(BOOTSTRAP, at(5)), completed(secondary, at(45)))
    data = Timeline((*KEPT, RESTORE, LATER))
    metadata = Timeline(builds[:1], archive(at(45), secondary)) if archived else Timeline(builds)
    storage = restores(data)
    write_index_definitions(storage, {name: secondary_index_definition(name, "city")})
    with pytest.raises(UnsupportedTableError, match="double keys"):
        check_index_is_of_the_rows(storage, data, metadata)
    folder = f".hoodie/metadata/{name}/.hoodie_partition_metadata"
    storage.create(folder, f"commitTime={secondary}\npartitionDepth=1\n".encode())
    check_index_is_of_the_rows(storage, data, metadata)


def test_a_second_restore_is_judged_by_what_it_kept() -> None:
    again = completed(at(80), at(90), Action.RESTORE)
    data = Timeline((*KEPT, RESTORE, LATER, again))
    for built in (65, 95):
        check_index_is_of_the_rows(restores(data), data, Timeline((completed(BOOTSTRAP, at(built)),)))
    for built in (55, 75, 85):
        with pytest.raises(UnsupportedTableError):
            check_index_is_of_the_rows(restores(data), data, Timeline((completed(BOOTSTRAP, at(built)),)))


@pytest.mark.parametrize(("built", "is_of_the_rows"), [(5, True), (15, True), (45, False), (65, True)])
def test_what_the_restore_kept_may_be_archived_since(built: int, is_of_the_rows: bool) -> None:
    """Hudi archives the commits before a restore, and never the restore."""
    data = Timeline((RESTORE, LATER), archive(at(20), at(19)))
    metadata = Timeline((completed(BOOTSTRAP, at(built)),))
    if is_of_the_rows:
        check_index_is_of_the_rows(restores(data), data, metadata)
        return
    with pytest.raises(UnsupportedTableError):
        check_index_is_of_the_rows(restores(data), data, metadata)


def test_an_index_is_built_at_any_time_where_nothing_was_restored() -> None:
    data = Timeline((*KEPT, LATER))
    check_index_is_of_the_rows(restores(data), data, Timeline((completed(BOOTSTRAP, at(45)),)))


@pytest.mark.parametrize("built", [45, 55])
def test_a_restore_that_took_nothing_back_left_the_index_right(built: int) -> None:
    """To a savepoint of the newest commit: the index that Hudi built meanwhile is that of the rows."""
    data = Timeline((*KEPT, RESTORE))
    metadata = Timeline((completed(BOOTSTRAP, at(built)),))
    check_index_is_of_the_rows(restores(data, []), data, metadata)

    # One that began and has not ended may have taken commits back after the index was built.
    begun = Instant(at(40), Action.RESTORE, State.INFLIGHT)
    data = Timeline((*KEPT, RESTORE, begun))
    with pytest.raises(UnsupportedTableError):
        check_index_is_of_the_rows(restores(data, []), data, metadata)


def test_a_restore_that_cannot_be_read_is_named() -> None:
    data = Timeline((*KEPT, RESTORE))
    storage = InMemoryStorage()
    storage.create(instant_path(RESTORE), b"")
    with pytest.raises(CorruptFileError, match=rf"{at(50)}_{at(60)}\.restore"):
        check_index_is_of_the_rows(storage, data, Timeline((completed(BOOTSTRAP, at(45)),)))


GOLDEN = Path(__file__).parents[3] / "golden/operations/restored.zip"


def test_what_sparks_restores_took_back_is_read() -> None:
    """A restore of the data table that took one commit back, and one of the metadata table that took none."""
    with zipfile.ZipFile(GOLDEN) as archive:
        names = [name for name in archive.namelist() if name.endswith(".restore")]
        found = {
            name.rpartition("/")[0]: decode_restored_instants(archive.read(name), name) for name in names
        }
    assert found == {
        ".hoodie/timeline": ("20261122182043938",),
        ".hoodie/metadata/.hoodie/timeline": (),
    }
