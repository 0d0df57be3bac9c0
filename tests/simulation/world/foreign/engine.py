"""The verb `foreign` of a script: what the engine does, one operation at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from tests.simulation.world.checkers.judge import Judge, Look
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench, Write
from tests.simulation.world.foreign.clock import HudiClock
from tests.simulation.world.foreign.index_building import IndexBuilding
from tests.simulation.world.foreign.index_compaction import IndexCompaction
from tests.simulation.world.foreign.restoring import Restoring
from tests.simulation.world.foreign.rows import Rows
from tests.simulation.world.foreign.services import Services
from tests.simulation.world.foreign.stats import ForeignStats
from tests.simulation.world.foreign.tidying import Tidying
from tests.simulation.world.foreign.undoing import Undoing
from tests.simulation.world.foreign.words import LEAVES_INDEX, PLANS, UNDONE_BY_A_RESTORE, WORDS
from tests.simulation.world.foreign.writes import LeftOutError, Writes
from tests.simulation.world.ports import WorldClock
from tidemark.hudi_format.schema import TableSchema
from tidemark.stream_runtime.ids import IdSource


class ForeignEngine:
    """Acts only while nobody holds the lock. ``done`` counts what it did, by name; ``begun``: instants;
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
        self._storage, self._judge, self._layout = storage, judge, layout
        self._clock = HudiClock(clock)
        bench = Bench(storage, self._clock, ids, schema, judge.look, shards, is_log, ordered, layout)
        self.building = IndexBuilding(bench, lambda: self._in_flight is not None)
        self._bench, self._writes = bench, Writes(bench, self.building.rebuild)
        self._undoing = Undoing(bench, judge.undone)
        dropped = self.building.dropped
        self._restoring = Restoring(bench, self._undoing, judge.undone, judge.excuse, dropped)
        self._services = Services(bench, self._writes, self._undoing)
        self._tidying = Tidying(bench, self._undoing)
        self._index = IndexCompaction(bench, self._undoing)
        self._in_flight: Write | None = None
        self._begun, self._halves, self._lock_left = set[str](), set[str](), False
        self._stats, self.begun = ForeignStats(bench).change, self._writes.begun
        self._build, self._leave_build = self.building.act, self.building.leave
        self._savepoint = self._restoring.savepoint
        self._rollback_own, self._run_clean = self._undoing.roll_back_newest, self._tidying.run_clean
        services = self._services
        self._plan_compaction, self._run_compaction = services.plan_compaction, services.run_compaction
        self._plan_clustering, self._run_clustering = services.plan_clustering, services.run_clustering
        self.done = Counter[str]()
        self.said = ""
        self._rows = Rows(layout, at, lambda: bench.has_note)

    def act(self, kind: str, *words: str) -> bool:
        """Does it, if the lock is free and Hudi would; returns whether it did."""
        self.said = ""
        if kind == "clock":
            self._clock.jump(int(words[0]))
            return True
        if kind == "undo":
            with self._judge.elsewhere(), suppress(LeftOutError):
                self.undo()
            return True
        if not self._bench.may():
            self.said = "the lock is held"
            return False
        words = tuple(map(self._as_written, words or WORDS.get(kind, ())))
        operation: Callable[..., None] = getattr(self, f"_{kind.replace('-', '_')}")
        # What it left out it may have begun: that is the engine's doing, too.
        with self._judge.elsewhere():
            try:
                self._before(kind)
                operation(self._judge.look(), *words)
                self.done[kind] += 1
            except LeftOutError as error:
                self.said = str(error)
                self.done["lost to a commit"] += "changed the same file groups" in self.said
        return not self.said

    def _before(self, kind: str) -> None:
        """Whoever writes the metadata table first carries out what is planned for it. While it builds an
        index it does nothing else.
        """
        look = self._judge.look()
        if self.building.is_on and kind != "build":
            raise LeftOutError("it builds an index")
        if kind not in LEAVES_INDEX:
            self.building.roll_back()
        if kind not in LEAVES_INDEX and self._index.is_pending(look):
            self._index.run(look, clean=False)
            self.done["run-compact-index"] += 1

    def sees_note(self) -> None:
        """The table has the column that came later, by a commit of whomever."""
        self._bench.has_note = True

    @property
    def commits(self) -> set[str]:
        """Instants of rows that it committed, whatever became of them."""
        return self._writes.committed

    @property
    def services_rolled_back(self) -> int:
        """How often it took back what the dead executor of a plan for the data table had left."""
        return self._undoing.services

    def _as_written(self, word: str) -> str:
        """Days as partition paths, keys as record keys; all else as it is."""
        if word[:1] in "dk" and word[1:].isdigit():
            return self._layout.path(word) if word[0] == "d" else self._layout.record_key(word)
        return word

    # ------------------------------------------------------------ rows

    def _commit(self, look: Look, *words: str) -> None:
        self._writes.finish(self._writes.begin(look, self._rows.changes(look, *words)), self._judge.look())

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
        self._rows.known(look, key)
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
        changes = self._rows.changes(look, "insert", day)
        self._writes.finish(self._writes.begin(look, changes, small[0]), self._judge.look())

    def _overwrite(self, look: Look, day: str) -> None:
        self._writes.finish(
            self._writes.begin_replace(look, day, self._rows.overwritten(look, day)), self._judge.look()
        )

    def _drop(self, look: Look, day: str) -> None:
        self._writes.finish(self._writes.begin_replace(look, day, {}), self._judge.look())

    # ------------------------------------------------------------ in flight

    def _begin(self, look: Look, *words: str) -> None:
        if self._in_flight is not None:
            raise LeftOutError("a write is in flight")
        changes = self._rows.changes(look, *words)
        if self._rows.adds_ours(look, changes):
            raise LeftOutError("two engines that insert the same new key at the same time double it")
        self._in_flight = self._writes.begin(look, changes)
        self._begun.add(self._in_flight.instant)
        self._bench.clock.wait()

    def _finish(self, look: Look) -> None:
        write, self._in_flight = self._in_flight, None
        if write is None:
            raise LeftOutError("nothing is in flight")
        if write.instant not in look.timeline.hudi.instants:
            raise LeftOutError("somebody rolled it back")
        self._writes.finish(write, look)

    def _die(self, _: Look) -> None:
        """What is in flight stays pending until somebody rolls it back."""
        write, self._in_flight = self._in_flight, None
        if write is None:
            raise LeftOutError("nothing is in flight")
        self._writes.stop(write)

    def _half(self, look: Look, day: str) -> None:
        """An insert that dies between the metadata table's commit and its own, holding the lock."""
        write = self._writes.begin(look, self._rows.changes(look, "insert", day))
        self._writes.commit_metadata(write, self._bench.instant(look))
        instants.stop(self._storage, write.instant)
        self._begun.add(write.instant)
        self._dies(write.instant, "metadata")

    def _half_begun(self, look: Look, day: str) -> None:
        """An insert that dies behind the first files of the groups that it begins, holding the lock."""
        if not self._layout.by_partition or day in look.reader.partitions(look.view):
            raise LeftOutError("it begins no groups there")
        write = self._writes.begin(look, self._rows.changes(look, "insert", day))
        self._bench.begin_index_groups(write)
        instants.stop(self._storage, write.instant)
        self._begun.add(write.instant)
        self._dies(write.instant, "metadata")

    def _dies(self, instant: str, where: str) -> None:
        """Between its two commits it leaves the lock behind."""
        if where == "metadata":
            self._storage.create(instants.LOCK, b"")
            self._halves.add(instant)
            self._lock_left = True

    @property
    def has_half(self) -> bool:
        """Whether something of the engine's is completed in the metadata table alone."""
        pending = self._judge.look().timeline.hudi.pending()
        return any(each.requested in self._halves and each.inflight for each in pending)

    def machine_crashed(self, came_back: Collection[str]) -> None:
        """Hudi's lock provider syncs no deletion: the dead one's lock may be there again, and block us."""
        self._lock_left = self._lock_left or instants.LOCK in came_back

    def undo(self) -> None:
        """Somebody removes the dead one's lock, as our coordinator asks for, and rolls back what it left:
        writes without a heartbeat.
        """
        if self._lock_left:
            self._lock_left = False
            instants.remove_lock(self._storage)
        if not self._bench.may():
            return
        for each in self._judge.look().timeline.hudi.pending("commit", "deltacommit", "replacecommit"):
            if self._writes.is_dead(each.requested, self._in_flight):
                self._before("undo")
                self._roll_back(each.requested)

    def settle(self) -> bool:
        """What is in flight is finished or rolled back, what is scheduled is carried out; False: not yet."""
        if self.building.is_on:
            self.act("build", "finish")
        if self.building.is_on:
            return False
        self.act("undo")
        if not self._bench.may():
            return not self._storage.exists(".hoodie/hoodie.properties")
        self._clock.jump(0)
        look = self._judge.look()
        planned = [*look.timeline.hudi.pending(*PLANS), *look.metadata.hudi.pending("compaction")]
        for each in [*planned, *look.metadata.hudi.completed("compaction")] if planned else []:
            # Who carries a plan out has a clock ahead of it, and of compactions of the metadata table.
            self._clock.reach(each.requested)
        for kind in ("finish", "undo", "compact-index", "run-compaction", "run-clustering", "run-clean"):
            if kind != "compact-index" or self._index.is_pending(self._judge.look()):
                self.act(kind)
        for each in self._judge.look().timeline.hudi.pending("clustering"):
            with self._judge.elsewhere():
                self._undoing.cancel_plan(self._judge.look(), each)
        return True

    def _rollback(self, look: Look) -> None:
        """The oldest write of anybody that is pending."""
        pending = look.timeline.hudi.pending(self._bench.action)
        if not pending:
            raise LeftOutError("nothing is pending")
        self._judge.excuse(pending[0].requested)
        self._roll_back(pending[0].requested)

    def _roll_back(self, instant: str) -> None:
        self._undoing.roll_back_pending(self._judge.look(), instant)
        if instant in self._begun:
            self.done["rollback of its own pending write"] += 1

    # ------------------------------------------------------------ savepoints

    def _delete_savepoints(self, _: Look) -> None:
        self._restoring.delete_savepoints()

    def _restore(self, look: Look) -> None:
        """To its newest savepoint, with commits of its own behind it. Where there is no savepoint to which
        Hudi restores now it first makes all that such a restore needs.
        """
        with self._clock.beyond(max(look.timeline.hudi.newest, look.metadata.hudi.newest)):
            if not self._has_restorable(look):
                self._prepare_restore()
            mine = self._in_flight.instant if self._in_flight is not None else None
            self._restoring.restore(self._judge.look(), mine)

    def _has_restorable(self, look: Look) -> bool:
        try:
            return any(each.completion is not None for each in self._restoring.targets(look))
        except LeftOutError:
            return False

    def _prepare_restore(self) -> None:
        """A savepoint of the newest commit, with one of its own before it where the metadata table was
        compacted or built since; then commits that the restore takes back.
        """
        look = self._judge.look()
        newest = look.timeline.hudi.writes()[-1:]
        if not newest or self._restoring.is_changed_since(look, newest[0].requested):
            self._commit(look, "empty")
            look = self._judge.look()
        if look.timeline.hudi.writes()[-1].requested not in look.timeline.hudi.savepoints:
            self._restoring.savepoint(look)
        done = 0
        for number in range(2 + self._rows.made % 3):
            what, *words = UNDONE_BY_A_RESTORE[(self._rows.made + number) % len(UNDONE_BY_A_RESTORE)]
            look = self._judge.look()
            there = sorted(look.content.rows)
            if what != "insert" and there:
                words = [there[self._rows.made % len(there)], *words]
            elif what != "insert":
                what, words = "insert", ["d0"]
            with suppress(LeftOutError):
                self._commit(look, what, *(self._as_written(word) for word in words))
                done += 1
        if not done:
            raise LeftOutError("there is nothing that it could take back")

    # ------------------------------------------------------------ services

    def _fail_compaction(self, look: Look, where: str = "files") -> None:
        if not look.timeline.hudi.pending("compaction"):
            self._services.plan_compaction(look)
        instant = self._services.fail_compaction(self._judge.look(), where == "metadata")
        self._dies(instant, where)

    def _compact(self, look: Look, *_: str) -> None:
        self._services.plan_compaction(look)
        self._services.run_compaction(self._judge.look())

    def _fail_clustering(self, look: Look, day: str, where: str = "files") -> None:
        if not look.timeline.hudi.pending("clustering"):
            self._services.plan_clustering(look, day)
        instant = self._services.fail_clustering(self._judge.look(), where == "metadata")
        self._dies(instant, where)

    def _cluster(self, look: Look, day: str) -> None:
        self._services.plan_clustering(look, day)
        self._services.run_clustering(self._judge.look())

    def _rollback_service(self, look: Look, action: str) -> None:
        if action == "index":
            self._index.roll_back(look)
        else:
            self._services.roll_back(look, action)

    def _clean(self, look: Look, policy: str, keep: str) -> None:
        if not look.timeline.hudi.pending("clean"):
            self._tidying.plan_clean(look, policy, int(keep))
        self._tidying.run_clean(self._judge.look())

    def _plan_clean(self, look: Look, policy: str, keep: str) -> None:
        self._tidying.plan_clean(look, policy, int(keep))
        self._clock.wait()

    def _compact_index(self, look: Look, *words: str) -> None:
        if not self._index.is_pending(look):
            self._index.plan(look)
        self._index.run(self._judge.look(), "clean" in words)

    def _plan_compact_index(self, look: Look) -> None:
        self._index.plan(look)
        self._clock.wait()

    def _fail_compact_index(self, look: Look) -> None:
        if not self._index.is_pending(look):
            self._index.plan(look)
        self._index.fail(self._judge.look())
        self._clock.wait()

    def _archive(self, look: Look, least: str = "1") -> None:
        self._tidying.archive(look, int(least))
