"""The steps of an archival: whatever breaks off, and whoever goes on, the same instants count, at the same
times, with the same bytes, in our reading and by Hudi's rules.
"""

from __future__ import annotations

import io
import random
from functools import partial

import pyarrow.parquet as pq
import pytest

from testing.faulty_storage import FaultyStorage, InjectedFaultError, When
from tests.hudi_rules.table import DATA
from tests.unit.hudi_format.table_services.archived_tables import (
    HISTORY,
    PLAN,
    ROWS,
    Turn,
    archived,
    check,
    files_of,
    names_of,
    t,
    table,
)
from tidemark.hudi_format.errors import FileMissingError, LockLostError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import ArchivePlan
from tidemark.hudi_format.table_services.archiving import (
    delete_instants,
    delete_superseded,
    merge_plan,
    newest_manifest,
    publish_rows,
    take_back,
)
from tidemark.hudi_format.timeline import load_timeline
from tidemark.hudi_format.timeline.archive_rows import encode_archive_file


def test_archived_instants_keep_their_bytes_and_only_the_others_stay_active() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    turn.archive()
    assert archived(storage) == ROWS
    assert names_of(storage) == sorted([*files_of(80), f"{t(90)}.deltacommit.requested"])
    assert names_of(storage, HISTORY) == [f"{t(10)}_{t(70)}_0.parquet", "_version_", "manifest_1"]
    assert storage.read(f"{HISTORY}/_version_") == b"1"
    check(storage)


def test_a_file_has_hudis_schema_and_footer() -> None:
    file = pq.ParquetFile(io.BytesIO(encode_archive_file(ROWS)))
    columns = ["instantTime (String)", "completionTime (String)", "action (String)", "metadata", "plan"]
    lines = [line.strip() for line in str(file.schema).splitlines()]
    assert [line for line in lines if "field_id" in line][1:] == [
        *(f"optional binary field_id=-1 {column};" for column in columns),
        "required int32 field_id=-1 version;",
    ]
    # The first two are Hudi's. What the last one is for: test_archive_actions.py.
    keys = [b"parquet.avro.schema", b"writer.model.name", b"tidemark.actions"]
    assert sorted(file.metadata.metadata) == sorted(keys)
    assert file.read().column("plan").to_pylist()[:2] == [None, b"requested 20"]
    assert set(file.read().column("version").to_pylist()) == {1}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_breaks_off_the_next_one_goes_on(seed: int) -> None:
    """Operations fail before or after they took effect, and the machine forgets deletions that were not
    synced.
    """
    chance, storage = random.Random(seed), FaultyStorage(table())
    for number in range(1, 6):
        storage.fail("*", chance.randrange(1, 45), chance.choice(list(When)))
        try:
            Turn(storage, number).archive()
        except InjectedFaultError:
            storage.fail_no_more()
            storage.crash(lambda _: chance.random() < 0.5)
            check(storage)
    storage.fail_no_more()
    Turn(storage, 9).archive()
    check(storage)
    assert archived(storage) == ROWS
    assert load_timeline(storage).first_active == t(80)


@pytest.mark.parametrize(
    "step",
    [
        archiving.AFTER_ARCHIVE_FILE,
        archiving.AFTER_ARCHIVE_MANIFEST,
        archiving.AFTER_ARCHIVE_VERSION,
        archiving.AFTER_PENDING_FILES_DELETED,
        archiving.AFTER_COMPLETED_FILE_DELETED,
    ],
)
def test_every_step_is_named_and_may_be_the_last_of_a_coordinator(step: str) -> None:
    storage = FaultyStorage(table())

    def dies(at: str) -> None:
        if at == step:
            raise InjectedFaultError(at)

    with pytest.raises(InjectedFaultError, match=step):
        Turn(storage, 1).archive(hit=dies)
    check(storage)
    Turn(storage, 2).archive()
    check(storage)
    assert archived(storage) == ROWS


def dies(at: str) -> None:
    raise InjectedFaultError(at)


def test_another_archivers_rows_are_not_written_again() -> None:
    """Before our manifest counts, Hudi's archiver takes the first instants."""
    storage = FaultyStorage(table())
    with pytest.raises(InjectedFaultError):
        Turn(storage, 1).archive(hit=dies)
    Turn(storage, 2).archive(ArchivePlan(False, PLAN.instants[:3]))
    turn = Turn(storage, 3)
    turn.archive()
    assert archived(storage) == ROWS
    check(storage)
    names = [file.name for file in newest_manifest(storage, ".hoodie").files]
    assert names == [f"{t(10)}_{t(30)}_0.parquet", f"{t(40)}_{t(70)}_0.parquet"]
    assert delete_superseded(storage, ".hoodie", turn.delete, lambda: False)
    assert f"{t(10)}_{t(70)}_0.parquet" not in names_of(storage, HISTORY), "nobody needs our first file"


def test_what_was_undone_is_not_archived_and_is_taken_back() -> None:
    storage = FaultyStorage(table())
    with pytest.raises(InjectedFaultError):
        Turn(storage, 1).archive(hit=dies)
    for name in files_of(60, "rollback"):
        storage.delete(f"{DATA}/{name}")
    turn = Turn(storage, 2)
    with pytest.raises(FileMissingError):
        turn.archive()
    take_back(storage, PLAN, turn.delete)
    assert names_of(storage, HISTORY) == []
    Turn(storage, 3).archive(ArchivePlan(False, PLAN.instants[:3]))
    take_back(storage, ArchivePlan(False, PLAN.instants[:3]), turn.delete)
    assert len(archived(storage)) == 3, "what is archived stays"


def test_an_instant_that_the_archive_lacks_is_not_deleted() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    publish_rows(
        turn.term,
        ArchivePlan(False, PLAN.instants[:2]),
        turn.term.lock.lease(),
        turn.delete,
        turn.hits.append,
    )
    assert delete_instants(storage, PLAN, turn.delete, turn.hits.append, lambda: False)
    assert load_timeline(storage).first_active == t(40)
    check(storage)


def test_a_damaged_file_and_a_manifest_that_do_not_count_are_replaced() -> None:
    storage = FaultyStorage(table())
    storage.create(f"{HISTORY}/{PLAN.file_name}", b"half of a fi")
    storage.create(f"{HISTORY}/manifest_1", b'{"files":[]}')
    storage.create(f"{HISTORY}/_version_", b"1")
    storage.create(f"{HISTORY}/manifest_2", b"half of a manif")
    Turn(storage, 1).archive()
    check(storage)
    assert newest_manifest(storage, ".hoodie").version == 2


def test_deletion_stops_when_its_time_is_over_and_goes_on() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    publish_rows(turn.term, PLAN, turn.term.lock.lease(), turn.delete, turn.hits.append)
    calls = 0
    while True:
        calls += 1
        left = iter([False, False, False])
        if delete_instants(storage, PLAN, turn.delete, turn.hits.append, partial(next, left, True)):
            break
        check(storage)
    assert calls == 7
    assert load_timeline(storage).first_active == t(80)


def test_without_the_lock_nothing_is_deleted() -> None:
    storage = FaultyStorage(table())
    turn = Turn(storage, 1)
    publish_rows(turn.term, PLAN, turn.term.lock.lease(), turn.delete, turn.hits.append)
    storage.delete_tree(".hoodie/lock")
    before = names_of(storage)
    with pytest.raises(LockLostError):
        delete_instants(storage, PLAN, turn.delete, turn.hits.append, lambda: False)
    assert names_of(storage) == before


@pytest.mark.parametrize("seed", range(30))
def test_two_archivers_take_turns_and_either_may_die(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours goes on with its plan after a death, or takes it back where the other one was faster. The other
    one merges files and deletes what it does not know, as Hudi does.
    """
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 2)
    chance, storage = random.Random(seed), FaultyStorage(table())
    plan: ArchivePlan | None = None
    for number in range(1, 12):
        plan = plan or some_of_the_oldest(storage, chance)
        if chance.random() < 0.7:
            storage.fail("*", chance.randrange(1, 30), chance.choice(list(When)))
        try:
            turn = Turn(storage, number)
            if chance.random() < 0.4:
                turn.archive(some_of_the_oldest(storage, chance))
                merge = merge_plan(newest_manifest(storage, ".hoodie"), ".hoodie")
                assert merge is None or turn.merge(merge)
                assert delete_superseded(storage, ".hoodie", turn.delete, lambda: False)
            else:
                plan = go_on(turn, plan)
        except InjectedFaultError:
            storage.crash(lambda _: chance.random() < 0.5)
        storage.fail_no_more()
        check(storage)
    Turn(storage, 20).archive(some_of_the_oldest(storage, None))
    check(storage)
    assert archived(storage) == ROWS


def some_of_the_oldest(storage: Storage, chance: random.Random | None) -> ArchivePlan:
    """A plan for some, or all, of the instants that may go; for the last one when all are gone."""
    going = [name for name in PLAN.instants if load_timeline(storage).contains(name.requested)]
    count = len(going) if chance is None else chance.randint(1, max(len(going), 1))
    return ArchivePlan(False, tuple(going[:count]) or PLAN.instants[-1:])


def go_on(turn: Turn, plan: ArchivePlan) -> ArchivePlan | None:
    """What is left to do of the plan."""
    try:
        turn.archive(plan)
    except FileMissingError:
        take_back(turn.storage, plan, turn.delete)
    return None
