"""Verification that goes on from a verified state: what it reads and finds, what only a full run finds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.replaced_groups import replace_commit
from tests.unit.table_files import existing_table, new_table, orders
from tests.unit.table_verification.damage import DAYS, Damage, changed_table, epoch_commit
from tidemark.hudi_format.metadata_table.checked_index import CHECKED_INDEX, checked_replacecommits
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
)
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.replaced_rows import ReplacedRows
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableType
from tidemark.hudi_format.timeline import load_timeline
from tidemark.table_verification import remembering
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.remembering import verify_and_remember
from tidemark.table_verification.verified_state import STATE_PATH, load_state, store_state
from tidemark.table_verification.verify import Verification, verify_table


@pytest.fixture(params=list(TableType), ids=lambda each: each.value)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Verified, with the state stored."""
    path = tmp_path / "table"
    changed_table(path, request.param)
    assert again(path).agrees
    return path


def again(path: Path, full: bool = False) -> Verification:
    return verify_and_remember(LocalStorage(path), full, lambda _: None, lambda _: None)


def kinds(result: Verification) -> dict[Kind, int]:
    return dict(result.findings.counts)


def test_unchanged_table_is_not_read_again(table: Path):
    result = again(table)
    assert result.agrees
    assert result.since == result.as_of
    assert (result.compared.file_groups, result.compared.shards, result.commits.ours) == (0, 0, 0)
    assert (result.rows, result.entries) == (59, 59)
    assert again(table, full=True).since is None


def test_only_changed_file_groups_are_read(table: Path):
    existing_table(table).commit(orders(("k4", DAYS[1], 30), ("new", DAYS[1], 30)))
    result = again(table)
    assert result.agrees
    assert (result.compared.file_groups, result.compared.shards) == (1, 0)
    assert result.rows == result.entries == 60
    assert again(table).compared.file_groups == 0


def test_many_random_commits_agree_at_every_step_as_a_full_run_does(tmp_path: Path):
    path, dice = tmp_path / "table", Random(11)
    writer = new_table(path, shards=3)
    for at in range(1, 13):
        keys = dice.sample(range(80), 12)
        rows = [(f"k{n}", dice.choice(DAYS), at) for n in keys[:9]]
        writer.commit(orders(*rows), [(f"k{n}", at) for n in keys[9:]])
        changed, full = again(path), verify_table(LocalStorage(path), lambda _: None)
        assert (changed.findings, full.findings) == (full.findings, changed.findings)
        assert changed.agrees
        assert (changed.since is None) == (at == 1)
        assert (changed.rows, changed.entries) == (full.rows, full.entries)
        assert changed.state == full.state


def test_random_damage_is_found_by_a_run_that_goes_on_exactly_when_a_full_run_finds_it(tmp_path: Path):
    path, before, dice = tmp_path / "table", tmp_path / "before", Random(7)
    writer = new_table(path, shards=3)
    writer.commit(orders(*((f"k{n}", DAYS[n % 3], 0) for n in range(30))))
    verdicts = {True: 0, False: 0}
    for at in range(1, 25):
        shutil.copytree(path, before)
        damage = Damage(path)
        one, other = (f"k{n}" for n in dice.sample(range(30), 2))
        step = dice.choice(["commit", "compact", "lose an entry", "exchange", "lose a file", "orphan"])
        if step == "commit":
            writer.commit(orders(*((f"k{dice.randrange(9)}", dice.choice(DAYS), at) for _ in range(4))))
        elif step == "compact":
            damage.compact_index()
        elif step == "lose an entry":
            damage.index(one, None)
        elif step == "exchange":
            places = damage.location_of(one), damage.location_of(other)
            damage.index(one, places[1])
            damage.index(other, places[0])
        elif step == "lose a file":
            damage.remove(dice.choice(damage.files(log=True) + damage.files(log=False)))
        else:
            source = dice.choice(damage.files(log=False))
            damage.copy_as(source, source.partition("/")[2][:8], "00000000")
        agrees = verify_table(LocalStorage(path), lambda _: None).agrees
        assert again(path).agrees == agrees, (at, step)
        verdicts[agrees] += 1
        if not agrees:
            shutil.rmtree(path)
            shutil.copytree(before, path)
        shutil.rmtree(before)
    assert min(verdicts.values()) > 5


def test_damage_since_the_last_run_is_named_by_a_full_comparison(table: Path):
    Damage(table).index("k4", None)
    result = again(table)
    assert kinds(result) == {Kind.ROW_WITHOUT_ENTRY: 1}
    assert result.since is None
    assert kinds(again(table)) == {Kind.ROW_WITHOUT_ENTRY: 1}, "what was found is not forgotten"


@pytest.mark.parametrize("what", ["elsewhere", "extra", "wrong shard", "twice", "lost rows"])
def test_each_damage_of_rows_or_index_is_found_by_a_run_that_goes_on(table: Path, what: str):
    damage = Damage(table)
    place = damage.location_of("k4")
    if what == "elsewhere":
        damage.index("k4", damage.location_of("k3"))
    elif what == "extra":
        damage.index("nobody", place)
    elif what == "wrong shard":
        damage.index("k4", place, shard=1 - damage.shard_of("k4"))
    elif what == "twice":
        damage.index("k4", None)
        existing_table(table).commit(orders(("k4", DAYS[2], 30)))
    else:
        of_day = [each for each in damage.files(log=False) if each.startswith(DAYS[1])]
        newest = max(of_day, key=lambda each: each.rpartition("_")[2])
        damage.files_say(newest, None)
        damage.remove(newest)
    changed, full = again(table), verify_table(LocalStorage(table), lambda _: None)
    assert kinds(changed) == kinds(full) != {}


def test_exchanged_entries_are_found_although_numbers_agree(table: Path):
    damage = Damage(table)
    first, second = damage.location_of("k3"), damage.location_of("k4")
    damage.index("k3", second)
    damage.index("k4", first)
    assert kinds(again(table)) == {Kind.ENTRY_ELSEWHERE: 2}


def test_lost_index_log_is_found_by_reading_all_shards(table: Path):
    damage = Damage(table)
    instant = damage.index("k4", damage.location_of("k4"))
    assert again(table).agrees
    damage.remove(damage.index_logs(instant)[0])
    result = again(table)
    # The entry said what was known before: rows and index still agree.
    assert result.agrees
    assert result.compared.shards == 2
    assert kinds(again(table, full=True)) == {Kind.COMMITTED_FILE_GONE: 1}


def test_damage_inside_a_verified_file_only_a_full_run_finds(tmp_path: Path):
    path = tmp_path / "table"
    changed_table(path, TableType.MERGE_ON_READ)
    assert again(path).agrees
    victim = path / Damage(path).files(log=False)[0]
    victim.write_bytes(bytes(victim.stat().st_size))
    assert again(path).agrees
    assert again(path, full=True).findings.counts[Kind.UNREADABLE] == 1


def test_rolled_back_commit_is_no_difference_and_its_files_are_read_anew(table: Path):
    before = {info.path: info for info in LocalStorage(table).walk("")}
    existing_table(table).commit(orders(("k4", DAYS[1], 30), ("new", DAYS[0], 30)))
    assert again(table).agrees
    for info in LocalStorage(table).walk(""):
        if info.path not in before and info.path != STATE_PATH:
            LocalStorage(table).delete(info.path)
    result = again(table)
    assert result.agrees
    assert result.compared.shards == 2
    assert (result.rows, result.entries) == (59, 59)


def test_compacted_index_is_read_whole(table: Path):
    writer = existing_table(table)
    Damage(table).compact_index()
    result = again(table)
    assert result.agrees
    assert (result.compared.file_groups, result.compared.shards) == (0, 2)
    writer.commit(orders(("k4", DAYS[1], 30), ("new", DAYS[0], 30)), [("k5", 30)])
    result = again(table)
    assert result.agrees
    assert (result.compared.shards, result.rows) == (0, 59)


def test_index_that_was_built_anew_is_read_whole_and_its_former_files_are_not_missed(table: Path):
    Damage(table).rebuild_index()
    result = again(table)
    assert result.agrees
    assert (result.compared.file_groups, result.compared.shards) == (0, 2)
    assert again(table, full=True).agrees


def test_position_gap_after_the_last_verified_commit_is_found(tmp_path: Path):
    path = tmp_path / "table"
    new_table(path).commit(orders(("k1", DAYS[0], 10)))
    epoch_commit(path, 1, (0, 5))
    assert again(path).agrees
    epoch_commit(path, 2, (5, 9))
    result = again(path)
    assert (result.agrees, result.commits.ours, result.commits.last_epoch) == (True, 1, 2)
    epoch_commit(path, 3, (10, 12))
    result = again(path)
    assert kinds(result) == {Kind.OFFSETS_GAP: 2}
    assert "epoch 2 " in result.findings.examples[Kind.OFFSETS_GAP][0]


def test_commit_that_vanished_has_all_commits_checked_again(tmp_path: Path):
    path = tmp_path / "table"
    new_table(path).commit(orders(("k1", DAYS[0], 10)))
    for epoch in (1, 2, 3):
        epoch_commit(path, epoch, (epoch, epoch + 1))
    assert again(path).agrees
    storage = LocalStorage(path)
    second = Damage(path).snapshot.data_timeline.completed()[2].requested
    for root in (".hoodie", f"{METADATA_TABLE_PATH}/.hoodie"):
        for info in storage.list(f"{root}/timeline"):
            if info.name.startswith(second):
                storage.delete(info.path)
    result = again(path)
    assert result.commits.ours == 2
    # An epoch without a commit looks like one without rows; its index file gives it away.
    assert Kind.ORPHAN_FILE in kinds(result)


@pytest.mark.parametrize("content", [b"", b"0000\n{}", b"no lines"])
def test_damaged_state_has_everything_read(table: Path, content: bytes):
    (table / STATE_PATH).write_bytes(content)
    said: list[str] = []
    result = verify_and_remember(LocalStorage(table), False, said.append, lambda _: None)
    assert (result.agrees, result.since) == (True, None)
    assert said[0].startswith(STATE_PATH)
    assert again(table).since is not None


def test_state_comes_back_as_it_was_stored(table: Path):
    storage = LocalStorage(table)
    state = load_state(storage)
    assert state is not None
    store_state(storage, state)
    assert load_state(storage) == state
    document = json.loads((table / STATE_PATH).read_bytes().partition(b"\n")[2])
    assert document["version"] == 1


def test_run_with_differences_leaves_the_state_alone(table: Path):
    before = (table / STATE_PATH).read_bytes()
    Damage(table).index("k4", None)
    assert not again(table).agrees
    assert (table / STATE_PATH).read_bytes() == before


def dropped_nothing(damage: Damage) -> str:
    """A delete partition of a file group that nobody knows; returns its name."""
    storage, instant = damage.storage, damage.times.next()
    for state in ("requested", "inflight"):
        storage.create(f".hoodie/timeline/{instant}.replacecommit.{state}", b"")
    inflight = begin_delta_commit(Unfenced(storage), instant)
    files = publish_files_log(Unfenced(storage), instant, [])
    complete_delta_commit(
        Unfenced(storage), inflight, damage.times.next(), delta_commit_metadata(instant, [files])
    )
    content = replace_commit({"nowhere": ["00000000-0000-0000-0000-000000000000-0"]})
    name = f"{instant}_{damage.times.next()}.replacecommit"
    storage.create(f".hoodie/timeline/{name}", content)
    return name


def believed(storage: LocalStorage) -> frozenset[str]:
    return checked_replacecommits(storage, ReplacedRows(storage).names(load_timeline(storage)))


def test_that_each_row_has_its_entry_is_kept_for_those_who_tag_by_the_index(tmp_path: Path):
    """Entries without a row, and files of nobody, do not put it in doubt; a row without one does."""
    table, storage = tmp_path / "table", LocalStorage(tmp_path / "table")
    changed_table(table, TableType.MERGE_ON_READ)
    assert again(table).agrees
    assert storage.exists(CHECKED_INDEX)
    assert believed(storage) == frozenset()
    Damage(table).index("nobody", RecordLocation(DAYS[0], "00000000-0000-0000-0000-000000000000-0"))
    log = Damage(table).files(log=True)[0]
    written = re.findall(r"\d{17}", log)[-1]
    Damage(table).copy_as(log, written, str(int(written) + 1))
    first = dropped_nothing(Damage(table))
    assert kinds(again(table)) == {Kind.ENTRY_WITHOUT_ROW: 1, Kind.ORPHAN_FILE: 1}
    assert believed(storage) == {first}

    Damage(table).index("k4", None)
    dropped_nothing(Damage(table))
    assert Kind.ROW_WITHOUT_ENTRY in kinds(again(table))
    assert believed(storage) == {first}


def test_nothing_is_kept_where_a_replacecommit_was_taken_back_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It may have hidden a row without an entry from the comparison."""
    table, storage = tmp_path / "table", LocalStorage(tmp_path / "table")
    changed_table(table, TableType.MERGE_ON_READ)
    left, hiding = dropped_nothing(Damage(table)), dropped_nothing(Damage(table))

    def verified(*arguments: Any) -> Verification:
        result = verify_table(*arguments)
        storage.delete(f".hoodie/timeline/{hiding}")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(remembering, "verify_table", verified)
        assert again(table).agrees
    assert believed(storage) == frozenset()
    assert again(table).agrees
    assert believed(storage) == {left}


def test_that_it_cannot_be_kept_is_said(table: Path):
    (table / CHECKED_INDEX).unlink()
    (table / CHECKED_INDEX).mkdir()
    said: list[str] = []
    assert verify_and_remember(LocalStorage(table), False, said.append, lambda _: None).agrees
    assert any(CHECKED_INDEX in line for line in said)
