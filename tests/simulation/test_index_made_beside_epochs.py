"""`tidemark index create` beside a coordinator that runs: commits of ours and of another engine come at every
step of it, and it dies at every step. Afterwards the index has exactly the entries of the rows, by a reader
and a rule of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from testing.clock import ManualClock
from testing.faulty_storage import WRITING
from tests.hudi_rules.timeline import parse_timeline
from tests.hudi_rules.value_entries import group_of, value_part_of
from tests.simulation.commit_path import CommitPath
from tests.simulation.configured_path import config_of
from tests.simulation.kept_secondary import entries_of_group
from tests.simulation.rewriting_engine import RewritingEngine
from tests.simulation.scripted_epochs import GROUP_A, GROUP_B, first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import SCHEMA
from tests.simulation.world.checkers.table import METADATA_TIMELINE
from tidemark.commit_coordinator.commit import index_at_rest
from tidemark.commit_coordinator.offline.recovery import recover
from tidemark.commit_coordinator.offline.secondary_build import SecondaryBuild
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.metadata_table.secondary_creation import secondary_partition
from tidemark.hudi_format.publication.beside import PosixCommand
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import ROOT
from tidemark.hudi_format.table_config import TableType, read_properties, read_table_config
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT

INDEX = secondary_partition("by_v")
FOLDER = f".hoodie/metadata/{INDEX.name}"
LISTED = "hoodie.table.metadata.partitions"
PLACES = sorted(WRITING - {"sync_dir", "touch"})


class Killed(BaseException):
    """The command was killed."""


class Watched:
    """The command's storage: `look` is told each call before it is made, `made` each that has returned."""

    def __init__(self, inner: Storage, look: Callable[[str, str], None]) -> None:
        self._inner, self._look = inner, look

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name.startswith("_") or not callable(found):
            return found

        def called(*args: Any, **kwargs: Any) -> Any:
            self._look(name, str(args[1 if name == "publish" else 0]))
            return found(*args, **kwargs)

        return called


class Life:
    """A table in use. `clock`: the command's, which lets the services work while the command sleeps."""

    def __init__(self, folder: Path, table_type: TableType) -> None:
        self.path = CommitPath(folder, table_type, ordered=True)
        first_epoch(self.path)
        self.path.run_until_idle()
        second_epoch(self.path)
        self.path.run_until_idle()
        self.engine = RewritingEngine(self.path.storage, self.path.clock, self.path.action)
        self.numbers = itertools.count(100)
        self.is_stepping = False

    @property
    def storage(self) -> Storage:
        return self.path.storage

    @property
    def is_on(self) -> bool:
        """Whether readers use the index."""
        return INDEX.name in read_index_definitions(self.storage)

    @property
    def is_free(self) -> bool:
        """Whether the engine of this test, which neither keeps the index nor takes the lock, may write."""
        return not self.is_on and read_lock(self.storage) is None

    def tag(self) -> None:
        """A new row, another value of a row, and a row that goes."""
        number = next(self.numbers)
        inserted = (row(f"n{number}", number, number), DataOp.INSERT, GROUP_A)
        changed = (row("a", number, number), DataOp.UPDATE, GROUP_A)
        self.path.tag([inserted, changed])
        self.path.tag([(row("c", number, number, "d2"), DataOp.UPDATE, GROUP_B)])

    def step(self) -> None:
        """The services work for a moment."""
        if not self.is_stepping:
            self.is_stepping = True
            try:
                self.path.step()
            finally:
                self.is_stepping = False

    def epoch(self) -> None:
        self.tag()
        for _ in range(4):
            self.step()

    def foreign_upsert(self) -> None:
        if self.is_free:
            self.engine.rewrite(SCHEMA, lambda rows: with_values(rows, next(self.numbers)))
        self.epoch()

    def foreign_upsert_and_restore(self) -> None:
        if self.is_free:
            self.engine.rewrite(SCHEMA, lambda rows: with_values(rows, next(self.numbers)))
            self.engine.restore()
        self.epoch()

    def compaction_and_clean(self) -> None:
        if self.is_free:
            self.engine.clean(self.engine.compact(("d1", GROUP_A)))
        self.epoch()

    def make(self, look: Callable[[str, str], None] = lambda name, path: None) -> None:
        """The command, from its start."""
        storage = cast(Storage, Watched(self.storage, look))
        build = SecondaryBuild(storage, CommandClock(self), self.path.ids)
        build.make(INDEX, read_table_config(self.storage), SCHEMA, "v")

    def run_until_idle(self) -> None:
        """Also where an index was left half made, or a lock."""
        for _ in range(200):
            self.path.step()
            self.path.clock.advance(2.5)
            if self.path.is_idle():
                return
        raise AssertionError(self.path.coordinator and self.path.coordinator.doing)

    def check(self, is_whole: bool = True) -> None:
        """The index says what the rows are, and nothing of commands is left."""
        assert (INDEX.name in read_properties(self.storage)[LISTED].split(",")) == is_whole
        assert self.is_on == is_whole
        if is_whole:
            assert entries(self.storage) == {f"{each['v']}${key}" for key, each in self.path.rows().items()}
        assert self.path.context is not None
        self.path.context.lock.free()
        assert read_lock(self.storage) is None
        assert not self.storage.exists(index_at_rest.ASKED)

    def check_later(self) -> None:
        """Now, and after one more epoch, of which all services know the index."""
        self.run_until_idle()
        self.check()
        self.tag()
        self.run_until_idle()
        self.check()
        left = [name for name in self.storage.names(ROOT) if name.startswith(("command-", "adopt-"))]
        assert left == []


class CommandClock(ManualClock):
    """The time is the table's; while the command sleeps, the services work."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def now_ms(self) -> int:
        return self._life.path.clock.now_ms()

    def sleep_ms(self, duration_ms: int) -> None:
        self._life.path.clock.sleep_ms(duration_ms)
        self._life.step()


def with_values(rows: pa.Table, value: int) -> pa.Table:
    """The rows with other values in the indexed column."""
    at = rows.schema.get_field_index("v")
    values = pc.add(rows.column("v"), value).cast(rows.schema.field(at).type)
    return rows.set_column(at, rows.schema.field(at), values)


def entries(storage: Storage) -> set[str]:
    """The living entries: the newest base file of each group, then the log files of later instants that are
    completed, in the order of their completion. Each is in the group in which readers look for its value.
    """
    timeline = parse_timeline(storage.names(METADATA_TIMELINE))
    done = {each.requested: each.completion for each in timeline.completed()}
    names = [name for name in storage.names(FOLDER) if not name.startswith(".hoodie")]
    groups = sorted({name.lstrip(".").partition("_")[0] for name in names})
    assert len(groups) > 1
    found = {
        (number, key)
        for number, group in enumerate(groups)
        for key in entries_of_group(storage, FOLDER, group, names, done)
    }
    assert all(group_of(value_part_of(key), len(groups)) == number for number, key in found)
    return {key for _, key in found}


def completed(storage: Storage, root: str) -> set[str]:
    """The completed instants of the timeline. Each of them has all its files."""
    files: dict[str, set[str]] = {}
    for name in storage.names(f"{root}/timeline"):
        instant, _, rest = name.partition(".")
        requested, _, completion = instant.partition("_")
        files.setdefault(requested, set()).add("completed" if completion else rest.rpartition(".")[2])
    done = {requested: states for requested, states in files.items() if "completed" in states}
    assert {each: states for each, states in done.items() if len(states) < 3} == {}
    return set(done)


def places_of(folder: Path) -> int:
    """How often the command changes something in the table."""
    changed: list[str] = []

    def look(name: str, path: str) -> None:
        if name in PLACES:
            changed.append(path)

    Life(folder, TableType.MERGE_ON_READ).make(look)
    return len(changed)


class Nth:
    """Does something once, before the nth change that the command makes."""

    def __init__(self, nth: int, act: Callable[[], None]) -> None:
        self._left, self._act, self.is_due = nth, act, True

    def __call__(self, name: str, path: str) -> None:
        if name in PLACES:
            self._left -= 1
            if self._left < 0 and self.is_due:
                self.is_due = False
                self._act()


ACTS = (Life.epoch, Life.foreign_upsert, Life.compaction_and_clean, Life.foreign_upsert_and_restore)


def test_what_is_committed_at_any_step_is_in_the_index(tmp_path: Path) -> None:
    for nth in range(places_of(tmp_path / "count")):
        life = Life(tmp_path / str(nth), TableType.MERGE_ON_READ)
        act = ACTS[nth % len(ACTS)]
        moment = Nth(nth, partial(act, life))
        life.make(moment)
        assert not moment.is_due
        life.check_later()


@pytest.mark.parametrize("table_type", list(TableType))
def test_beside_a_stream_that_never_rests_the_lock_is_held_for_no_reading(
    tmp_path: Path, table_type: TableType
) -> None:
    """Rows come and are committed before each step of the command; it asks the coordinator for rest."""
    life = Life(tmp_path, table_type)
    asked, read_locked, epochs = [], [], set()

    def look(name: str, path: str) -> None:
        if life.is_stepping:
            return
        holder = read_lock(life.storage)
        if holder is not None and holder.command:
            read_locked.extend([path] if path.startswith("d") else [])
        elif path == index_at_rest.ASKED:
            asked.append(life.path.state().committed.epoch)
        if name in PLACES:
            life.tag()
            life.step()
        epochs.add(life.path.state().committed.epoch)

    life.make(look)
    assert read_locked == []
    assert asked
    assert len(epochs) > 3
    life.check_later()


def test_a_command_that_is_killed_at_any_step_is_repeated(tmp_path: Path) -> None:
    def die() -> None:
        raise Killed

    for nth in range(places_of(tmp_path / "count")):
        life = Life(tmp_path / str(nth), TableType.MERGE_ON_READ)
        if nth % 2:
            life.make()  # and it is made anew by the one that dies

        class Dying(Nth):
            def __call__(self, name: str, path: str) -> None:
                if not self.is_due:
                    raise Killed
                super().__call__(name, path)

        with pytest.raises(Killed):
            life.make(Dying(nth, die))
        life.tag()
        life.run_until_idle()
        life.check(is_whole=life.is_on)
        life.make()
        assert completed(life.storage, METADATA_TABLE_ROOT)
        life.path.clock.advance(700)
        life.make()
        life.check_later()


def test_recover_frees_the_lock_that_a_killed_command_left(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    life = Life(tmp_path / "table", TableType.MERGE_ON_READ)
    life.path.crash()
    killed = PosixCommand(life.path.storage, life.path.clock, life.path.ids, "")
    assert killed.lock.try_acquire()
    config = config_of(life.path, tmp_path)
    recover(config, life.path.client, life.path.storage, life.path.clock, life.path.ids)
    assert read_lock(life.storage) is None
    with pytest.raises(FencedOutError):
        killed.storage.replace("x", b"")


def test_a_command_that_died_while_it_asked_for_rest_is_not_waited_for(tmp_path: Path) -> None:
    life = Life(tmp_path, TableType.MERGE_ON_READ)
    rest = index_at_rest.Rest(life.storage, INDEX.name, "nonce")
    committed = life.path.state().committed.epoch
    life.tag()
    for _ in range(10):
        rest.ask()
        life.step()
        life.path.clock.advance(2.5)
    assert life.path.state().committed.epoch == committed
    assert life.path.coordinator is not None
    assert life.path.coordinator.seen.awaited is not None
    assert "tidemark index" in life.path.coordinator.seen.awaited.reason
    life.run_until_idle()
    assert life.path.state().committed.epoch > committed


def test_epochs_go_on_as_soon_as_the_command_has_ended(tmp_path: Path) -> None:
    life = Life(tmp_path, TableType.MERGE_ON_READ)
    rest = index_at_rest.Rest(life.storage, INDEX.name, "nonce")
    life.tag()
    rest.ask()
    life.path.step_coordinator()
    assert life.path.state().planned is None
    rest.end()
    life.path.clock.advance(0.25)
    life.path.step_coordinator()
    assert life.path.state().planned is not None


def test_a_command_that_asks_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    life = Life(tmp_path, TableType.MERGE_ON_READ)
    rest = index_at_rest.Rest(life.storage, INDEX.name, "nonce")
    committed = life.path.state().committed.epoch
    life.tag()
    for _ in range(int(index_at_rest.REST_MS_MAX / 2_500) + 5):
        rest.ask()
        life.step()
        life.path.clock.advance(2.5)
    assert life.path.state().committed.epoch > committed


def test_an_index_that_is_dropped_beside_epochs_is_gone_for_both(tmp_path: Path) -> None:
    """The open attempt, which has entries of the index, is void, and its rows are written anew without."""
    life = Life(tmp_path, TableType.MERGE_ON_READ)
    life.make()
    life.tag()
    life.path.step_coordinator()
    assert life.path.write_open_attempt()
    SecondaryBuild(life.storage, CommandClock(life), life.path.ids).drop(INDEX)
    life.run_until_idle()
    life.check(is_whole=False)
    life.make()
    life.check_later()
