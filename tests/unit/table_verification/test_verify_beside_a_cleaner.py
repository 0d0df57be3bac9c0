"""Verification beside a cleaner and other services: what was cleaned is no difference, what is cleaned now is
looked at again, and files of an action that begins now are no orphans.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.table_files import new_table, orders
from tests.unit.table_verification.damage import DAYS, Damage, changed_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested, instant_path
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Listing
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import UndecidedError, Verification, verify_table


def verified(path: Path) -> Verification:
    return verify_table(LocalStorage(path), lambda _: None)


def kinds(result: Verification) -> dict[Kind, int]:
    return dict(result.findings.counts)


def test_old_base_file_that_a_cleaner_took_is_no_difference(tmp_path: Path):
    path = tmp_path / "table"
    changed_table(path, TableType.COPY_ON_WRITE)
    damage = Damage(path)
    first = damage.snapshot.data_timeline.completed()[0].requested
    old = next(each for each in damage.files(log=False) if first in each)
    damage.files_say(old, None)
    damage.remove(old)
    assert verified(path).agrees


def test_clean_that_has_not_ended_may_have_deleted_what_no_reader_needs(tmp_path: Path):
    path = tmp_path / "table"
    changed_table(path, TableType.COPY_ON_WRITE)
    damage = Damage(path)
    of_day = sorted(
        (each for each in damage.files(log=False) if each.startswith(DAYS[1])),
        key=lambda each: each.rpartition("_")[2],
    )
    assert len(of_day) == 2
    damage.remove(of_day[0])
    assert kinds(verified(path)) == {Kind.FILE_MISSING: 1}
    create_inflight(
        Unfenced(damage.storage),
        create_requested(Unfenced(damage.storage), damage.times.next(), Action.CLEAN),
    )
    assert verified(path).agrees
    damage.remove(of_day[1])
    assert verified(path).findings.examples[Kind.FILE_MISSING] == [of_day[1]]


class CleanerAtWork(LocalStorage):
    """Removes a file, as its cleaner would, while it is listed; `rounds` times, with a clean each time."""

    def __init__(self, path: Path, victims: list[str], rounds: int) -> None:
        super().__init__(path)
        self.victims, self.rounds = victims, rounds

    def walk(self, path: str) -> Listing:
        if self.rounds and path == DAYS[0]:
            self.rounds -= 1
            us, damage = Unfenced(self), Damage(Path(self.base_uri))
            damage.remove(self.victims.pop())
            instant = damage.times.next()
            started = create_inflight(us, create_requested(us, instant, Action.CLEAN))
            complete(us, started, damage.times.next(), b"")
        return super().walk(path)


def cleaned_meanwhile(path: Path, rounds: int) -> CleanerAtWork:
    """Older base files go one after the other; the metadata table is told only before and after."""
    writer = new_table(path, TableType.COPY_ON_WRITE)
    for at in range(6):
        writer.commit(orders(*((f"k{n}", DAYS[0], at) for n in range(5))))
    return CleanerAtWork(path, sorted(Damage(path).files(log=False))[:-1], rounds)


def test_files_that_a_cleaner_takes_meanwhile_are_looked_at_again(tmp_path: Path):
    storage = cleaned_meanwhile(tmp_path / "table", 1)
    victim = storage.victims[-1]
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "looking again" in text:
            Damage(tmp_path / "table").files_say(victim, None)

    waited: list[float] = []
    assert verify_table(storage, say, wait=waited.append).agrees
    assert said.count("files of the table were removed meanwhile: looking again in 1 s") == 1
    assert waited == [1.0]


def test_files_that_go_in_every_look_leave_it_undecided(tmp_path: Path):
    storage = cleaned_meanwhile(tmp_path / "table", 99)

    def say(text: str) -> None:
        if "looking again" in text:
            present = {info.path for info in storage.list(DAYS[0])}
            damage = Damage(tmp_path / "table")
            for partition, name, _ in damage.snapshot.files:
                if f"{partition}/{name}" not in present:
                    damage.files_say(f"{partition}/{name}", None)

    waited: list[float] = []
    with pytest.raises(UndecidedError, match="each of 5 readings.*verify again"):
        verify_table(storage, say, wait=waited.append)
    assert waited == sorted(waited)
    assert sum(waited) >= 60.0, "an archive action may remove files for half a minute"


class ActionMeanwhile(LocalStorage):
    """Another process has a file of an action appear in a folder just before it is listed, once; the action's
    instant was chosen before the newest one. If it `is_taken_back`, all of it is gone right after that.
    """

    def __init__(self, path: Path, folder: str, root: str, is_taken_back: bool) -> None:
        super().__init__(path)
        self._folder: str | None = folder
        self._root, self._is_taken_back = root, is_taken_back
        self._instant = str(int(Damage(path).snapshot.data_timeline.completed()[0].requested) + 1)

    def walk(self, path: str) -> Listing:
        return self._listed(path, super().walk)

    def list(self, path: str) -> Listing:
        return self._listed(path, super().list)

    def _listed(self, path: str, listing: Callable[[str], Listing]) -> Listing:
        if path != self._folder:
            return listing(path)
        self._folder, us = None, Unfenced(self)
        requested = create_requested(us, self._instant, Action.COMPACTION, root=self._root)
        inflight = create_inflight(us, requested, root=self._root)
        name = f"{path}/00000000-0000-4000-8000-000000000000-0_0-0-0_{self._instant}.parquet"
        self.create(name, b"whole")
        found = listing(path)
        assert name in [info.path for info in found]
        if self._is_taken_back:
            for gone in (name, *(instant_path(each, self._root) for each in (inflight, requested))):
                self.delete(gone)
        return found


FOLDERS = [(DAYS[0], DATA_ROOT), (RECORD_INDEX_FOLDER, METADATA_TABLE_ROOT)]


@pytest.mark.parametrize("is_taken_back", [False, True])
@pytest.mark.parametrize(("folder", "root"), FOLDERS)
def test_files_of_an_action_that_begins_meanwhile_are_no_orphans(
    tmp_path: Path, folder: str, root: str, is_taken_back: bool
):
    path = tmp_path / "table"
    changed_table(path, TableType.MERGE_ON_READ)
    storage, said = ActionMeanwhile(path, folder, root, is_taken_back), list[str]()
    assert verify_table(storage, said.append).agrees
    assert not [text for text in said if "looking again" in text]


def test_a_difference_that_stays_is_told_although_files_go(tmp_path: Path):
    storage = cleaned_meanwhile(tmp_path / "table", 99)
    Damage(tmp_path / "table").index("k4", None)
    result = verify_table(storage, lambda _: None, wait=lambda _: None)
    assert result.findings.counts[Kind.ROW_WITHOUT_ENTRY] == 1
