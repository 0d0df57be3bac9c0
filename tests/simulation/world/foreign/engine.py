"""The verb `foreign` of a script: what the engine does, one operation at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from hudi_format.commit import heartbeat
from hudi_format.commit.lock import LOCK_PATH
from hudi_format.model import InstantGenerator
from hudi_format.schema import TableSchema
from stream_runtime.ids import IdSource
from tests.simulation.world.checkers.judge import Judge, Look
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.foreign.bench import Bench, Changes, Write
from tests.simulation.world.foreign.clock import HudiClock
from tests.simulation.world.foreign.services import Services
from tests.simulation.world.foreign.undoing import Undoing
from tests.simulation.world.foreign.writes import LeftOutError, Writes
from tests.simulation.world.ports import WorldClock

_WORDS: Final = dict.fromkeys(
    ("insert", "insert-into", "overwrite", "drop", "half", "plan-clustering", "cluster"), ("d0",)
)
KEYS: Final = 6
"""Our input has the keys k0 to k5; what the engine inserts in flight has keys of its own, f0, f1 …"""


class ForeignEngine:
    """Acts only while nobody holds the lock. ``done`` counts what it did, by name;
    ``at()`` gives an ordering value above all that the input had so far.
    """

    def __init__(
        self,
        storage: Any,
        clock: WorldClock,
        ids: IdSource,
        schema: TableSchema,
        judge: Judge,
        shards: int,
        is_log: bool,
        ordered: bool,
        layout: Layout,
        at: Callable[[], int],
    ) -> None:
        self._storage, self._judge, self._at = storage, judge, at
        self._layout = layout
        self._clock = HudiClock(clock)
        self._instants = InstantGenerator(clock)
        bench = Bench(storage, self._clock, ids, schema, judge.look, shards, is_log, ordered, layout)
        self._bench, self._writes = bench, Writes(bench)
        self._services = Services(bench, self._writes)
        self._undoing = Undoing(bench, self._instants, judge.undone)
        self._in_flight: Write | None = None
        self.has_half = self._lock_left = False
        self.done = Counter[str]()
        self.said = ""
        self._rows = self._fresh = self._inserted = 0

    def act(self, kind: str, *words: str) -> bool:
        """Does it, if the lock is free and Hudi would; returns whether it did."""
        self.said = ""
        if kind == "clock":
            self._clock.jump(int(words[0]))
            return True
        if kind == "undo":
            with self._judge.elsewhere():
                self.undo()
            return True
        if not self._bench.may():
            self.said = "the lock is held"
            return False
        words = tuple(map(self._as_written, words or _WORDS.get(kind, ())))
        operation: Callable[..., None] = getattr(self, f"_{kind.replace('-', '_')}")
        try:
            with self._judge.elsewhere():
                self._instants.observe([])
                operation(self._judge.look(), *words)
        except LeftOutError as error:
            self.said = str(error)
            if "changed the same file groups" in self.said:
                self.done["lost to a commit"] += 1
            return False
        self.done[kind] += 1
        return True

    def sees_note(self) -> None:
        """The table has the column that came later, by a commit of whomever."""
        self._bench.has_note = True

    def _as_written(self, word: str) -> str:
        """Days as partition paths, keys as record keys; all else as it is."""
        if word[:1] in "dk" and word[1:].isdigit():
            return self._layout.path(word) if word[0] == "d" else self._layout.record_key(word)
        return word

    # ------------------------------------------------------------ rows

    def _row(self, look: Look, key: str, day: str) -> Row:
        """A new version of the key, above all that the input had, and above the one that is there."""
        self._rows += 1
        there = look.content.rows.get(key)
        at = max(self._at(), there.at if there is not None else 0)
        note = f"n{self._rows}" if self._bench.has_note else None
        return Row(day, at, -self._rows, note)

    def _known(self, look: Look, key: str) -> Row:
        if key == "f":
            fresh = (each for each in look.content.rows if self._layout.name(each).startswith("f"))
            key = max(fresh, default=key)
        if key not in look.content.rows:
            raise LeftOutError(f"there is no {key}")
        return look.content.rows[key]

    def _absent(self, look: Look) -> str:
        keys = [self._layout.record_key(f"k{n}") for n in range(KEYS)]
        absent = [key for key in keys if key not in look.content.rows]
        if not absent:
            raise LeftOutError("every key is there")
        return absent[self._inserted % len(absent)]

    def _changes(self, look: Look, what: str, *words: str) -> Changes:
        if what == "empty":
            return {}
        if what == "insert":
            self._inserted += 1
            key = self._absent(look)
            return {key: self._row(look, key, *words)}
        if what == "fresh":
            self._fresh += 1
            key = self._layout.record_key(f"f{self._fresh}")
            return {key: self._row(look, key, *words)}
        key, *rest = words
        row = self._known(look, key)
        if what == "delete":
            return {key: None}
        return {key: self._row(look, key, rest[0] if what == "move" else row.day)}

    def _commit(self, look: Look, *words: str) -> None:
        self._writes.finish(self._writes.begin(look, self._changes(look, *words)), self._judge.look())

    def _insert(self, look: Look, day: str) -> None:
        self._commit(look, "insert", day)

    def _empty(self, look: Look) -> None:
        self._commit(look, "empty")

    def _update(self, look: Look, key: str) -> None:
        self._commit(look, "update", key)

    def _delete(self, look: Look, key: str) -> None:
        self._commit(look, "delete", key)

    def _move(self, look: Look, key: str, day: str) -> None:
        self._commit(look, "move", key, day)

    def _column(self, look: Look, key: str) -> None:
        """An update with a column that the table did not have. Who asks for the table's columns asks the
        commit with the greatest completion time, so a column of another one is nowhere.
        """
        self._known(look, key)
        newest = max((str(each.completion) for each in look.timeline.hudi.completed()), default="")
        if self._bench.instant(look) <= newest:
            raise LeftOutError("its clock is behind a commit that lacks the column")
        before, self._bench.has_note = self._bench.has_note, True
        try:
            self._commit(look, "update", key)
        except LeftOutError:
            self._bench.has_note = before
            raise

    def _insert_into(self, look: Look, day: str) -> None:
        """A new row in a small file group that is there: its base file is written anew."""
        small = [
            place
            for place, files in look.view.merged
            if place[0] == day
            and not any(file.is_log for file in files)
            and place not in look.timeline.scheduled
        ]
        if not small:
            raise LeftOutError("no file group without log files in the partition")
        changes = self._changes(look, "insert", day)
        self._writes.finish(self._writes.begin(look, changes, small[0]), self._judge.look())

    def _overwrite(self, look: Look, day: str) -> None:
        self._writes.finish(
            self._writes.begin_replace(look, day, self._overwritten(look, day)), self._judge.look()
        )

    def _overwritten(self, look: Look, day: str) -> dict[str, Row]:
        """One row that was in the partition, or an absent one."""
        there = sorted(key for key, row in look.content.rows.items() if row.day == day)
        key = there[self._rows % len(there)] if there else self._absent(look)
        return {key: self._row(look, key, day)}

    def _drop(self, look: Look, day: str) -> None:
        self._writes.finish(self._writes.begin_replace(look, day, {}), self._judge.look())

    # ------------------------------------------------------------ in flight

    def _begin(self, look: Look, *words: str) -> None:
        if self._in_flight is not None:
            raise LeftOutError("a write is in flight")
        self._in_flight = self._writes.begin(look, self._changes(look, *words))
        self._bench.clock.wait()

    def _finish(self, look: Look) -> None:
        write, self._in_flight = self._in_flight, None
        if write is None:
            raise LeftOutError("nothing is in flight")
        if write.instant not in look.timeline.hudi.instants:
            raise LeftOutError("somebody rolled it back")
        self._writes.finish(write, look)

    def _half(self, look: Look, day: str) -> None:
        """An insert that dies between the metadata table's commit and its own, holding the lock."""
        write = self._writes.begin(look, self._changes(look, "insert", day))
        self._writes.commit_metadata(write, self._bench.instant(look))
        heartbeat.stop(self._storage, write.instant)
        self._storage.create(LOCK_PATH, b"")
        self.has_half = self._lock_left = True

    def machine_crashed(self, came_back: Collection[str]) -> None:
        """Hudi's lock provider syncs no deletion: the dead one's lock may be there again, and block us."""
        self._lock_left = self._lock_left or LOCK_PATH in came_back

    def undo(self) -> None:
        """Somebody removes the dead one's lock, as our coordinator asks for, and rolls back what it left:
        writes without a heartbeat.
        """
        if self._lock_left:
            self._lock_left = False
            self._storage.delete(LOCK_PATH)
        if not self._bench.may():
            return
        self.has_half = False
        for each in self._judge.look().timeline.hudi.pending("commit", "deltacommit", "replacecommit"):
            if not self._storage.exists(heartbeat.heartbeat_path(each.requested)):
                self._undoing.roll_back_pending(self._judge.look(), each.requested)

    def settle(self) -> bool:
        """What is in flight is finished or rolled back, what is scheduled is carried out; False: not yet."""
        self.act("undo")
        if not self._bench.may():
            return not self._storage.exists(".hoodie/hoodie.properties")
        self._clock.jump(0)
        for each in self._judge.look().timeline.hudi.pending("compaction"):
            # Nobody carries out what is planned ahead of his clock; whoever planned it has such a clock.
            self._clock.reach(each.requested)
        for kind in ("finish", "undo", "run-compaction", "run-clustering"):
            self.act(kind)
        for each in self._judge.look().timeline.hudi.pending("clustering"):
            with self._judge.elsewhere():
                self._undoing.cancel_plan(self._judge.look(), each)
        return True

    def _rollback(self, look: Look) -> None:
        """The oldest write of anybody that is pending."""
        pending = look.timeline.hudi.pending(self._bench.action.value)
        if not pending:
            raise LeftOutError("nothing is pending")
        self._judge.excuse(pending[0].requested)
        self._undoing.roll_back_pending(look, pending[0].requested)

    def _rollback_own(self, look: Look) -> None:
        self._undoing.roll_back_newest(look)

    def _savepoint(self, look: Look) -> None:
        self._undoing.savepoint(look)

    def _delete_savepoints(self, look: Look) -> None:
        self._undoing.delete_savepoints(look)

    def _restore(self, look: Look) -> None:
        mine = {self._in_flight.instant} if self._in_flight is not None else set()
        self._undoing.own_pending = frozenset(mine)
        self._undoing.restore(look)

    # ------------------------------------------------------------ services

    def _plan_compaction(self, look: Look) -> None:
        self._services.plan_compaction(look)

    def _run_compaction(self, look: Look) -> None:
        self._services.run_compaction(look)

    def _compact(self, look: Look, *_: str) -> None:
        self._services.plan_compaction(look)
        self._services.run_compaction(self._judge.look())

    def _plan_clustering(self, look: Look, day: str) -> None:
        self._services.plan_clustering(look, day)

    def _run_clustering(self, look: Look) -> None:
        self._services.run_clustering(look)

    def _cluster(self, look: Look, day: str) -> None:
        self._services.plan_clustering(look, day)
        self._services.run_clustering(self._judge.look())

    def _clean(self, look: Look, policy: str, keep: str) -> None:
        self._services.clean(look, policy, int(keep))

    def _compact_index(self, look: Look, *words: str) -> None:
        self._services.compact_index(look, "clean" in words)

    def _archive(self, look: Look, least: str = "1") -> None:
        self._services.archive(look, int(least))
