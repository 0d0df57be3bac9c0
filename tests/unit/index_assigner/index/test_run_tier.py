"""When a shard gets a run, what the run answers, and what ends it (docs/adr/0014-run-files.md)."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from tests.unit.index_assigner.index.test_index_beside_services import (
    archive_table,
    rebuild_index,
    superseded,
)
from tests.unit.index_assigner.index_world import BIG, MANY, Assigner, Change, DataTable, load_runs, promoted
from tests.unit.page.page_world import PageWorld
from tidemark.cli.commands.admin import status_lines
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.index import foreign_deletes
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import COVERAGE_PREFIX, STATE_PREFIX, shard_bytes
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.files import RunFolder
from tidemark.index_assigner.runs.loading import RunLoad, SteppedLoads, ThreadedLoads

GROUPS = {key: group for key, (group, _) in MANY.items()}


def groups(assigner: Assigner, keys=MANY) -> dict[str, int | None]:
    return {key: found.group for key, found in assigner.ask(list(keys)).items()}


def forget_hot(assigner: Assigner) -> None:
    assigner.index._hot.drop_shards([ShardId(number) for number in range(assigner.table.shards)])


def run_files(assigner: Assigner) -> list[Path]:
    return sorted((assigner.folder / "runs").glob("*.run"))


def test_a_shard_that_is_read_is_loaded_and_its_run_outlives_the_process_compactions_and_cleans(
    assigners, table
) -> None:
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    completion = promoted(
        one, table, {"k0001": Change(9, 900), "k0002": Change(None, 901, deleted_from=3)}, 5
    )
    table.compact_index(clean=True)
    one.close()
    two = assigners(table).open(table.known(completion))
    found = two.ask([*MANY, "new"])
    assert {key: each.group for key, each in found.items()} == {
        **GROUPS,
        "k0001": 9,
        "k0002": None,
        "new": None,
    }
    assert {found[key].tier for key in ("k0001", "k0002")} == {Tier.ROCKSDB}
    assert {found[key].tier for key in ("k0003", "k0399")} == {Tier.RUN}
    assert found["new"].tier is Tier.NONE
    stats = two.index.stats()
    assert stats["blocks_read"] == 0
    assert stats["run_shards"] == table.shards
    assert stats["run_entries"] == len(MANY)
    assert stats["run_bytes"] == sum(path.stat().st_size for path in run_files(two))


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("compactions", [1, 2])
def test_a_complete_run_is_right_after_commits_compactions_and_cleans_of_others_while_nobody_was_there(
    assigners, table, compactions: int, archived: bool
) -> None:
    """Compacted once its log files are gone, twice its base file too. The answers take longer, and are right:
    what was moved, deleted, made, and deleted and made again, and what the run alone still knows.
    """
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    assert one.index.stats()["run_entries"] == len(MANY)
    one.close()
    table.commit_rows({"k0002": (7, 10_000), "new": (8, 10_001)}, {"k0001": 10_002, "k0003": 10_003})
    table.compact_index(clean=True)
    table.commit_rows({"k0003": (9, 10_004)}, {"k0004": 10_005})
    for value in range(10_006, 10_010):
        table.commit_rows({f"later-{value}": (1, value)})
    for _ in range(compactions - 1):
        table.compact_index(clean=True)
    if archived:
        archive_table(table, 1)
    two = assigners(table).open(table.known())
    for _ in range(2):
        assert groups(two, [*MANY, *table.rows, "never"]) == {
            **dict.fromkeys(MANY),
            **{key: group for key, (group, _) in table.rows.items()},
            "never": None,
        }


def test_a_shard_of_which_little_was_read_is_not_loaded(assigners, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 1)
    table = DataTable(shards=1)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table).open()
    assert table.snapshot().shard(ShardId(0)).block_count == 400
    for key in list(MANY)[:8]:
        one.ask([key])
    for _ in range(3):
        one.ask(["k0000"])
    assert one.index.stats()["runs_loaded"] == 0
    one.ask(["k0050"])
    one.ask(["k0000"])
    one.ask(["k0000"])
    assert groups(one) == GROUPS
    assert one.index.stats()["runs_loaded"] == 1


@pytest.mark.parametrize("at", [0, 30, -40, -1])
def test_a_damaged_run_is_set_aside_named_and_loaded_again(assigners, table, at: int) -> None:
    one = assigners(table).open()
    load_runs(one, list(MANY))
    one.close()
    path = run_files(one)[1]
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data if at else data[:-1])
    two = assigners(table).open()
    assert groups(two) == GROUPS
    stats = two.index.stats()
    assert stats["runs_damaged"] == stats["run_damaged_shard_1"] == 1
    assert path.with_suffix(".damaged").exists()
    load_runs(two, list(MANY))
    assert two.index.stats()["run_shards"] == table.shards
    assert path.exists()


def test_status_names_the_shard_of_a_run_file_that_was_set_aside(assigners, table) -> None:
    one = assigners(table).open()
    load_runs(one, list(MANY))
    one.close()
    path = run_files(one)[1]
    path.write_bytes(path.read_bytes()[:-1])
    two = assigners(table).open()
    assert groups(two) == GROUPS
    load_runs(two, list(MANY))
    world = PageWorld()
    member = {"slot": 0, "process": "a", "address": "h:1", "lanes": ["0"], "uncommitted_entries": 0}
    world.status["services"]["assign"] = [{**member, "figures": two.index.stats()}]
    told = "\n".join(status_lines(world.make_status()))
    assert "run_damaged_shard_1 1" in told
    assert "run_entries_lacking 0" in told
    assert "runs_damaged 1" in told


def test_a_new_life_begins_without_the_former_runs_even_if_their_files_come_back(assigners, table) -> None:
    """A deletion may be lost with the power: the file's name is that of another life."""
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    changed = [f"{shard:05d}" for shard in record_index_shard(["k0000", "k0001"], table.shards).tolist()]
    files = {path: path.read_bytes() for path in run_files(one) if path.name[:5] in changed}
    table.commit_rows({"k0000": (9, 900)}, {"k0001": 901})
    table.compact_index(clean=True)
    one.index.rewind()
    one.open(table.known())
    assert groups(one, ["k0000", "k0001"]) == {"k0000": 9, "k0001": None}
    assert not set(files) & set(run_files(one))
    one.close()
    for path, data in files.items():
        path.write_bytes(data)
    two = assigners(table).open(table.known())
    assert groups(two) == {**GROUPS, "k0000": 9, "k0001": None}
    assert not set(files) & set(run_files(two))


def loading(assigners):
    """An assigner whose only shard is being loaded, and its table."""
    loads, table = SteppedLoads(), DataTable(shards=1)
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    one = assigners(table, loads=loads).open(table.known())
    one.ask(list(MANY)[:2])
    one.ask(list(MANY)[2:])
    assert loads.is_busy
    return one, table


def test_a_load_that_began_before_the_shard_was_opened_again_is_never_published(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here nobody ends it: it is whole when it is asked for again."""
    one, table = loading(assigners)
    monkeypatch.setattr(one.index._runs, "end_load", lambda *_: None)
    table.commit_rows({"k0000": (9, 900)}, {"k0001": 901})
    table.compact_index(clean=False)
    for path in superseded(table):
        if ".log." in path:
            table.storage.delete(path)
    one.index.rewind()
    one.open(table.known())
    for _ in range(3):
        one.ask(list(MANY))
        forget_hot(one)
    assert groups(one) == {**GROUPS, "k0000": 9, "k0001": None}


def test_an_index_that_was_built_anew_under_the_same_name_ends_the_life(assigners, table) -> None:
    rebuild_index(table)
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    one.close()
    table.live["k0001"] = 9
    rebuild_index(table)
    two = assigners(table).open(table.known())
    assert groups(two)["k0001"] == 9


def test_rocksdb_is_durable_before_a_run_has_its_name(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power could leave a run that is ahead of the entries over it."""
    done: list[str] = []
    for owner, name in ((RunFolder, "finish"), (RocksTier, "sync"), (RunFolder, "publish")):
        real = getattr(owner, name)

        def watched(*arguments, name=name, real=real):
            done.append(name)
            return real(*arguments)

        monkeypatch.setattr(owner, name, watched)
    one = assigners(table).open()
    done.clear()
    load_runs(one, list(MANY))
    assert done == ["finish", "sync", "publish"] * table.shards


def test_a_base_file_that_is_cleaned_while_it_is_loaded_ends_that_load_alone(assigners) -> None:
    one, table = loading(assigners)
    promoted(one, table, {"new": Change(1, 901)}, 5)
    table.compact_index(clean=False)
    for path in superseded(table):
        table.storage.delete(path)
    for _ in range(20):
        one.ask(["new"])
    assert one.index.stats()["runs_loaded"] == 0
    assert list((one.folder / "runs").iterdir()) == []
    assert groups(one, [*MANY, "new"]) == {**GROUPS, "new": 1}
    load_runs(one, list(MANY))
    assert groups(one, [*MANY, "new"]) == {**GROUPS, "new": 1}


def test_without_room_on_disk_nothing_is_loaded_and_every_answer_is_the_same(assigners, table) -> None:
    one = assigners(table, limits=IndexLimits(1 << 20, disk_bytes=1)).open()
    for _ in range(5):
        forget_hot(one)
        assert groups(one, [*MANY, "absent"]) == {**GROUPS, "absent": None}
    assert one.index.stats()["runs_loaded"] == 0
    changes = {"k0000": Change(None, 1000, deleted_from=1), "new": Change(2, 1)}
    promoted(one, table, changes, 5)
    found = one.ask([*MANY, "new"])
    assert (found["k0000"].group, found["k0000"].ordering, found["k0000"].deleted_from) == (None, 1000, 1)
    assert found["new"].group == 2
    assert one.index.stats()["shards_dropped"] >= table.shards


def test_the_disk_limit_takes_runs_before_entries_and_what_is_used_least_first(assigners, table) -> None:
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    forget_hot(one)
    used = [key for key, found in one.ask(list(MANY)).items() if found.tier is Tier.RUN]
    assert len(used) == len(MANY)
    last = next(iter(MANY))
    numbers = record_index_shard(list(MANY), table.shards).tolist()
    one.ask([key for key, number in zip(MANY, numbers, strict=True) if number == numbers[0]])
    sizes = {path.name: path.stat().st_size for path in run_files(one)}
    # A sixteenth of all leaves beside what has to.
    kept = one.rocks.disk_bytes() + max(sizes.values()) * 5 // 4 + 1_000
    object.__setattr__(one.limits, "disk_bytes", kept)
    promoted(one, table, {"new": Change(2, 1)}, 5)
    stats = one.index.stats()
    assert stats["run_shards"] == 1
    assert stats["runs_evicted"] == table.shards - 1
    assert stats["shards_dropped"] == 0
    assert one.ask([last])[last].tier in (Tier.RUN, Tier.HOT)
    assert groups(one) == GROUPS


def test_a_delete_of_another_writer_finds_the_former_place_in_the_run(
    assigners, table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard without a run asks its base file for some thousand keys at most; here for none."""
    monkeypatch.setattr(foreign_deletes, "_BASE_KEYS_MAX", 0)
    one = assigners(table).open(table.known())
    load_runs(one, list(MANY))
    table.commit_rows({}, {"k0001": 950})
    one.index.rewind()
    one.open(table.known())
    found = one.ask(["k0001"])["k0001"]
    assert (found.group, found.ordering, found.deleted_from) == (None, 950, MANY["k0001"][0])


def test_parts_of_a_load_that_a_killed_process_left_are_deleted(assigners, table, folder) -> None:
    (folder / "a" / "runs").mkdir(parents=True)
    left = folder / "a" / "runs" / "00001-x.part"
    left.write_bytes(b"half")
    assigners(table).open()
    assert not left.exists()


def test_a_run_of_another_shard_or_life_under_the_right_name_is_damage(assigners, table) -> None:
    one = assigners(table).open()
    load_runs(one, list(MANY))
    one.close()
    first, second, *_ = run_files(one)
    shutil.copy(first, second)
    two = assigners(table).open()
    assert groups(two) == GROUPS
    assert two.index.stats()["run_damaged_shard_1"] == 1


def test_a_folder_of_a_former_version_goes_on_and_that_version_believes_no_bit_map_when_it_is_back(
    assigners, table
) -> None:
    one = assigners(table).open(table.known())
    promoted(one, table, {"k0001": Change(3, 900)}, 5)
    for number in range(table.shards):
        key = shard_bytes(ShardId(number))
        former = json.loads(one.rocks.get(STATE_PREFIX + key))
        del former["life"]
        former["blocks"] = 1
        keys = [STATE_PREFIX + key, COVERAGE_PREFIX + key]
        one.rocks.write([(keys, [json.dumps(former).encode(), b"\x80"])])
    one.close()
    two = assigners(table).open(table.known())
    found = two.ask(["k0001", "k0002", "new"])
    assert {key: each.group for key, each in found.items()} == {"k0001": 3, "k0002": 3, "new": None}
    assert found["k0001"].ordering == 900, "entries go on"
    for number in range(table.shards):
        key = shard_bytes(ShardId(number))
        record = json.loads(two.rocks.get(STATE_PREFIX + key))
        assert (record["blocks"], two.rocks.get(COVERAGE_PREFIX + key)) == (0, None)
        assert record["life"]


class HeldBase:
    """A base file that cannot be opened before it is let go."""

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def __call__(self):
        self.asked.set()
        self.let_go.wait()
        raise FileMissingError("gone")


def test_a_load_on_a_thread_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    folder, base, loads = RunFolder(tmp_path), HeldBase(), ThreadedLoads()
    identity = RunIdentity(1, "life", "base", "mark", False)
    loads.start(RunLoad(folder, "00001-life", identity, base, lambda: None, 1 << 20))
    base.asked.wait()
    loads.end()
    assert [loads.is_busy, loads.take_ended()] == [True, None]
    base.let_go.set()
    loads.close()
    assert not loads.is_busy
    assert loads.take_ended() is None
    assert list(tmp_path.iterdir()) == []


def test_a_load_on_a_thread_ends_with_its_run_and_one_that_grows_too_large_with_none(tmp_path: Path) -> None:
    table = DataTable(shards=1)
    table.commit_rows(BIG)
    table.compact_index(clean=True)
    snapshot = table.snapshot().shard(ShardId(0))
    folder, loads = RunFolder(tmp_path), ThreadedLoads()
    identity = RunIdentity(0, "life", snapshot.base_name or "", snapshot.base_mark, False)
    for bytes_max, left in ((1 << 20, ["00000-life.part"]), (1_000, [])):
        load = RunLoad(folder, "00000-life", identity, snapshot.open_base, snapshot.check_base, bytes_max)
        loads.start(load)
        loads._thread.join()
        assert loads.take_ended() is load
        assert [path.name for path in tmp_path.iterdir()] == left
        assert (load.error is None) == bool(left)
        assert not loads.is_busy
        folder.discard("00000-life")
