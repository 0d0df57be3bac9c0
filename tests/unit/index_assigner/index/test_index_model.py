"""The tiered index against dictionaries: it answers what is true, whatever is staged, counted, dropped,
committed, promoted, written by others, compacted, evicted, restarted or moved to another process.

The model keeps the table's rows, the counted transactions after the last promoted epoch, and what is staged.
Clock time stands still, so tombstones do not end here.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.index_assigner.index_world import (
    LANES,
    TTL_MS,
    Assigner,
    Change,
    DataTable,
    index_rows,
    memory_folder,
    tombstone_rows,
)
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier

KEYS = [f"key-{number}" for number in range(14)] + ["é", "\U0001f600", "\ufb01"]
GROUPS = st.integers(1, 3)
VALUES = st.integers(0, 9)
EVENTS = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.none() | GROUPS, VALUES), min_size=1, max_size=8)

Row = tuple[int, int]


class TieredIndexMachine(RuleBasedStateMachine):
    """`effective`: rows as tagged so far; `memory_tombs`: those of keys deleted since the last promotion."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=memory_folder()))
        self.table = DataTable()
        self.offset = 0
        self.epoch = 0
        self.tombs: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.foreign: dict[str, set[int]] = {}
        self.topic: list[dict[str, Change]] = []
        self.position = {"a": 0, "b": 0}
        self.on_disk: tuple[int, str] | None = None
        self.through = 0
        self.counted: list[tuple[int, dict[str, Change]]] = []
        self.staged: list[dict[str, Change]] = []
        self.positions: dict[int, int] = {}

    @initialize(
        small=st.booleans(),
        no_disk=st.booleans(),
        rows=st.sets(st.sampled_from(KEYS)),
    )
    def begin(self, small: bool, no_disk: bool, rows: set[str]) -> None:
        self.limits = IndexLimits(3_000 if small else 1 << 20, 1 if no_disk else 1 << 30)
        if rows:
            self.table.commit_rows(dict.fromkeys(sorted(rows), (1, 3)))
        self.start("a")

    def start(self, name: str) -> None:
        """A process with the folder of that name, its lanes opened as after a claim."""
        self.name = name
        self.one = Assigner(self.table, self.folder / name, self.limits)
        self.open_lanes()

    def open_lanes(self) -> None:
        self.one.open()
        self.staged = []
        tail = self.topic[self.position[self.name] :]
        for lane in range(LANES):
            assert self.one.index.tombstones_position(lane) == self.position[self.name]
            rows = [self.rows_of_lane(tombstone_rows, each, lane, TTL_MS * 10**9) for each in tail]
            self.one.index.load_tombstones(lane, rows, len(self.topic))
            for offset, changes in self.counted:
                self.one.index.load_counted(
                    lane,
                    offset,
                    [self.rows_of_lane(index_rows, changes, lane)],
                    [self.rows_of_lane(tombstone_rows, changes, lane, TTL_MS * 10**9)],
                    self.positions[offset],
                )
        for changes in tail:
            self.keep_tombs(changes)
        self.position[self.name] = len(self.topic)

    def rows_of_lane(self, make, changes, lane, *more):
        mine = self.one.by_lane(list(changes))[lane]
        return make({key: changes[key] for key in mine}, self.table.shards, *more)

    def keep_tombs(self, changes: dict[str, Change]) -> None:
        kept = self.tombs[self.name]
        for key, change in changes.items():
            if change.group is None:
                assert change.ordering is not None
                kept[key] = max(kept.get(key, change.ordering), change.ordering)

    # ------------------------------------------------------------ what is true

    def truth(self, key: str) -> tuple[Row | None, int | None]:
        """(row, greatest known tombstone of an absent key)."""
        row, last = self.committed_row(key), None
        for change in [c[key] for c in (*(c for _, c in self.counted), *self.staged) if key in c]:
            last = change
            if change.group is None:
                row = None
            else:
                assert change.ordering is not None
                raised = max(row[1], change.ordering) if change.updated and row else change.ordering
                row = (change.group, raised)
        tombs = [self.tombs[self.name].get(key)]
        if last is not None and last.group is None:
            tombs.append(last.ordering)
        return row, max((each for each in tombs if each is not None), default=None)

    def committed_row(self, key: str) -> Row | None:
        """As of the last promoted epoch: what counts after it is in `counted`, on disk or not."""
        return self.before_epoch.get(key) if self.on_disk else self.table.rows.get(key)

    # ------------------------------------------------------------ what happens

    @rule(events=EVENTS)
    def tag(self, events: dict[str, tuple[int | None, int]]) -> None:
        """Decides as the assign stage does, from the index's own answers."""
        found = self.one.ask(list(events))
        changes: dict[str, Change] = {}
        for key, (group, value) in events.items():
            answer = found[key]
            if answer.group is None:
                # What other writers deleted is not always seen to be older here.
                if value >= max(self.table.reached.get(key, -1), answer.ordering or -1):
                    changes[key] = Change(group, value, deleted_from=answer.deleted_from)
            elif group == answer.group:
                if answer.ordering is None or value >= answer.ordering:
                    changes[key] = Change(group, value, exact=answer.exact, updated=True)
            else:
                stored = answer.ordering if answer.exact else self.one.exact(key, answer.group)
                assert stored is not None
                assert (answer.group, stored) == self.truth(key)[0]
                if value >= stored:
                    changes[key] = Change(group, value, deleted_from=answer.group if group is None else None)
        if changes:
            self.one.stage(changes)
            self.staged.append(changes)

    @rule()
    def count(self) -> None:
        self.offset += 1
        merged = self.staged
        self.staged = []
        self.topic.extend(merged)
        self.positions[self.offset] = len(self.topic)
        if len(merged) > 1:
            # Of several batches in one transaction the last change of a key stands.
            merged = [_net(merged)]
        if merged:
            self.counted.append((self.offset, merged[0]))
        position = {lane: len(self.topic) for lane in range(LANES)}
        self.one.index.counted(range(LANES), self.offset, position)

    @rule()
    def drop(self) -> None:
        for lane in range(LANES):
            self.one.index.drop_staged(lane)
        self.staged = []

    @precondition(lambda self: self.counted and self.on_disk is None)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """The coordinator commits an epoch; the assigner has not read of it yet."""
        through = data.draw(st.sampled_from([offset for offset, _ in self.counted]))
        self.before_epoch = dict(self.table.rows)
        upserts: dict[str, Row] = {}
        deletes: dict[str, int] = {}
        for key in KEYS:
            self_changes = [c[key] for offset, c in self.counted if offset <= through and key in c]
            if not self_changes:
                continue
            last = self_changes[-1]
            assert last.ordering is not None
            if last.group is not None:
                upserts[key] = (last.group, last.ordering)
            elif key in self.table.rows:
                deletes[key] = last.ordering
        self.on_disk = through, self.table.commit_rows(upserts, deletes)

    @precondition(lambda self: self.on_disk is not None)
    @rule()
    def promote(self) -> None:
        assert self.on_disk is not None
        through, completion = self.on_disk
        self.epoch += 1
        for _ in range(2):
            self.one.index.promote(through, completion, self.epoch)
        covered = [changes for offset, changes in self.counted if offset <= through]
        self.keep_tombs(_net(covered))
        if self.counted_offsets(through):
            position = self.positions[self.counted_offsets(through)[-1]]
            self.position[self.name] = max(self.position[self.name], position)
        self.counted = [each for each in self.counted if each[0] > through]
        self.through, self.on_disk = through, None

    def counted_offsets(self, through: int) -> list[int]:
        return [offset for offset in self.positions if self.through < offset <= through]

    @rule(events=EVENTS)
    def another_writer_commits(self, events: dict[str, tuple[int | None, int]]) -> None:
        """… and everything not committed is rewound; a decided epoch is finished first."""
        if self.on_disk is not None:
            self.promote()
        upserts: dict[str, Row] = {}
        deletes: dict[str, int] = {}
        for key, (group, value) in events.items():
            stored = self.table.reached.get(key, -1)
            if group is None and key in self.table.rows:
                deletes[key] = max(stored, value)
                self.foreign.setdefault(key, set()).add(deletes[key])
            elif group is not None:
                upserts[key] = (group, max(stored, value))
        if not upserts and not deletes:
            return
        self.table.commit_rows(upserts, deletes)
        self.one.index.rewind()
        self.counted = []
        self.staged = []
        self.through = self.offset
        self.open_lanes()

    @rule(clean=st.booleans())
    def compact(self, clean: bool) -> None:
        self.table.compact_index(clean)

    @rule(other=st.booleans())
    def restart(self, other: bool) -> None:
        """This process again, or one whose folder is from when it last owned the lanes."""
        if self.on_disk is not None and other:
            self.promote()
        self.one.close()
        self.start({"a": "b", "b": "a"}[self.name] if other else self.name)

    @invariant()
    def every_answer_is_true(self) -> None:
        if not hasattr(self, "one"):
            return
        for key, found in self.one.ask(KEYS).items():
            row, tomb = self.truth(key)
            assert found.group == (row[0] if row else None), (key, found, row)
            if row is None:
                # Of another writer's delete the value is known where its place was: then it counts, too.
                known = {each for each in self.foreign.get(key, ()) if tomb is None or each > tomb}
                assert found.ordering in {tomb, *known}, (key, found, tomb, known)
                continue
            assert found.tier is not Tier.NONE
            if found.exact:
                assert found.ordering == row[1], (key, found, row)
            elif found.ordering is not None:
                assert found.ordering <= row[1], (key, found, row)
        stats = self.one.index.stats()
        assert stats["hot_bytes"] <= self.limits.hot_cache

    def teardown(self) -> None:
        if hasattr(self, "one"):
            self.one.close()
        shutil.rmtree(self.folder)


def _net(changes: list[dict[str, Change]]) -> dict[str, Change]:
    """Several batches as one. An update of a row that is inserted in the same one is that insert."""
    net: dict[str, Change] = {}
    for each in changes:
        net.update(each)
    return net


TestTieredIndex = TieredIndexMachine.TestCase
TestTieredIndex.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
