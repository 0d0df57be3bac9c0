"""Reducing and tagging whole batches ends in the same state as replaying the events one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.index_assigner.domain.reduce import reduce_batch
from tidemark.index_assigner.domain.tag import StoredKeys, Tag, needs_exact, tag_events


@dataclass(frozen=True)
class Event:
    key: str
    delete: bool
    ordering: int | None
    partition: str


@dataclass(frozen=True)
class Row:
    partition: str
    ordering: int | None


def replay(events: list[Event], ordered: bool) -> tuple[dict[str, Row], dict[str, int]]:
    """(live rows, tombstones) after one event at a time, by the definition of last writer wins."""
    rows: dict[str, Row] = {}
    tombstones: dict[str, int] = {}
    for event in events:
        row = rows.get(event.key)
        if not ordered:
            if event.delete:
                rows.pop(event.key, None)
            else:
                rows[event.key] = Row(event.partition, None)
            continue
        if event.delete and event.ordering is None:
            if row is not None:
                assert row.ordering is not None
                tombstones[event.key] = row.ordering
                del rows[event.key]
            continue
        assert event.ordering is not None
        floor = row.ordering if row is not None else tombstones.get(event.key)
        if floor is not None and event.ordering < floor:
            continue
        if event.delete:
            rows.pop(event.key, None)
            tombstones[event.key] = event.ordering
        else:
            tombstones.pop(event.key, None)
            rows[event.key] = Row(event.partition, event.ordering)
    return rows, tombstones


class Columnar:
    """Drives the columnar code batch by batch; `bounds` are keys whose stored value is a lower bound only."""

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.rows: dict[str, Row] = {}
        self.known: dict[str, tuple[int, bool]] = {}
        self.tombstones: dict[str, int] = {}
        self.accounted = 0

    def forget_exactness(self) -> None:
        self.known = {k: (v - 1, False) for k, (v, _) in self.known.items() if k in self.rows}

    def apply(self, batch: list[Event]) -> None:
        keys = pa.array([e.key for e in batch], pa.string())
        ordering = pa.array([e.ordering if self.ordered else None for e in batch], pa.int64())
        delete_flags = np.array([e.delete for e in batch], np.bool_)
        events = reduce_batch(keys, ordering, delete_flags, self.ordered)
        winners = [batch[i] for i in events.rows]
        deletes = delete_flags[events.rows]
        stored = self._stored(winners)
        moves = np.array(
            [
                not e.delete and e.key in self.rows and self.rows[e.key].partition != e.partition
                for e in winners
            ],
            np.bool_,
        )
        for i in np.flatnonzero(needs_exact(events, deletes, moves, stored, self.ordered)):
            ordering_stored = self.rows[winners[i].key].ordering
            assert ordering_stored is not None
            self.known[winners[i].key] = (ordering_stored, True)
        stored = self._stored(winners)
        tagged = tag_events(events, deletes, moves, stored, self.ordered)
        self.accounted += events.superseded + len(winners)
        for i, event in enumerate(winners):
            self._take(event, Tag(tagged.tag[i]), int(tagged.ordering[i]), bool(tagged.has_ordering[i]))
            if tagged.tag[i] in (Tag.INSERT, Tag.UPDATE, Tag.MOVE) and tagged.has_ordering[i]:
                self.known[event.key] = (int(tagged.ordering[i]), bool(tagged.exact[i]))

    def _stored(self, winners: list[Event]) -> StoredKeys:
        present = np.array([e.key in self.rows for e in winners], np.bool_)
        values = [
            self.known.get(e.key) if e.key in self.rows else _tombstone(self.tombstones.get(e.key))
            for e in winners
        ]
        return StoredKeys(
            present=present,
            location=np.zeros(len(winners), np.int32),
            ordering=np.array([v[0] if v else 0 for v in values], np.int64),
            has_ordering=np.array([v is not None for v in values], np.bool_),
            exact=np.array([bool(v and v[1]) for v in values], np.bool_),
        )

    def _take(self, event: Event, tag: Tag, ordering: int, has_ordering: bool) -> None:
        if tag in (Tag.INSERT, Tag.UPDATE, Tag.MOVE):
            assert (tag is Tag.INSERT) == (event.key not in self.rows)
            stored = self.rows.get(event.key)
            if tag is Tag.UPDATE and self.ordered and stored is not None:
                # The writer's merge judges an update by the row's own value.
                assert event.ordering is not None
                assert stored.ordering is not None
                if event.ordering < stored.ordering:
                    return
            self.rows[event.key] = Row(event.partition, event.ordering if self.ordered else None)
            self.tombstones.pop(event.key, None)
        elif tag is Tag.DELETE:
            del self.rows[event.key]
            self.known.pop(event.key, None)
            if self.ordered:
                assert has_ordering
                self.tombstones[event.key] = ordering
        elif tag is Tag.NO_OP and has_ordering:
            self.tombstones[event.key] = ordering


def _tombstone(value: int | None) -> tuple[int, bool] | None:
    return None if value is None else (value, True)


events = st.builds(
    Event,
    key=st.sampled_from("abcd"),
    delete=st.booleans(),
    ordering=st.one_of(st.none(), st.integers(0, 9)),
    partition=st.sampled_from(["p", "q"]),
).filter(lambda e: e.delete or e.ordering is not None)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(events, min_size=1, max_size=12), max_size=6), st.booleans(), st.booleans())
def test_batches_end_as_a_replay_of_single_events(
    batches: list[list[Event]], ordered: bool, forgetful: bool
) -> None:
    columnar = Columnar(ordered)
    for batch in batches:
        if forgetful:
            columnar.forget_exactness()
        columnar.apply(batch)
    rows, tombstones = replay([e for batch in batches for e in batch], ordered)
    assert columnar.rows == rows
    assert columnar.tombstones == tombstones
    assert columnar.accounted == sum(len(batch) for batch in batches)


def test_many_events_of_one_key_reduce_in_one_pass() -> None:
    count = 100_000
    result = reduce_batch(
        pa.array(["k"] * count), pa.array(range(count), pa.int64()), np.zeros(count, np.bool_), True
    )
    assert result.rows.tolist() == [count - 1]
    assert result.superseded == count - 1


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.none() | st.integers(0, 4), st.booleans()),
        max_size=20,
    ),
    st.booleans(),
)
def test_rows_of_one_key_in_several_partitions_are_reduced_apart(
    rows: list[tuple[str, int, int | None, bool]], ordered: bool
) -> None:
    """As if partition and key were one key."""
    events = [
        (key, path, 0 if value is None and not gone else value, gone) for key, path, value, gone in rows
    ]
    ordering = pa.array([value if ordered else None for _, _, value, _ in events], pa.int64())
    deletes = np.array([gone for *_, gone in events], np.bool_)
    keys = pa.array([key for key, *_ in events], pa.string())
    partitions = np.array([path for _, path, *_ in events], np.int32)
    joined = pa.array([f"{key}/{path}" for key, path, *_ in events], pa.string())
    apart = reduce_batch(keys, ordering, deletes, ordered, partitions)
    expected = reduce_batch(joined, ordering, deletes, ordered)
    assert apart.superseded == expected.superseded
    for name in ("rows", "ordering", "has_ordering", "had_null_delete"):
        assert getattr(apart, name).tolist() == getattr(expected, name).tolist()
