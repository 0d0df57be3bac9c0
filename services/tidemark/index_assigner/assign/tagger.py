"""Tags a batch of keyed rows (ARCHITECTURE.md, "Assign", steps 1 to 5), on columns.

1. Reduce each lane's rows to one event per key.
2. Look the keys up in the index.
3. Decide per key: insert, update, move, delete, superseded or no-op.
4. Choose file groups for inserts and moves, apart from deletes that would hide them.
5. Make the data, index and tombstone rows, and the changes that the index stages.

Every input record is in exactly one count: input = inserts + updates + deletes + superseded + no_ops +
dead_letters. A move is an update that is also in ``moves``; it makes two data rows (a delete in the old
partition, an insert in the new one) and one index row. Superseded events lost against another event of the
batch, or are stale against the stored value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.batches import KEY, OP, ORDERING, SHARD, DataOp, IndexOp, KeyedOp
from tidemark.epoch_protocol.entries import Counts
from tidemark.index_assigner.assign.keyed_batch import KeyedBatch, LaneSpan
from tidemark.index_assigner.assign.placement import Placement
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray, EffectiveEvents, Int64Array, reduce_batch
from tidemark.index_assigner.domain.tag import StoredKeys, Tag, TaggedKeys, needs_exact, tag_events
from tidemark.index_assigner.index.ports import KeyIndex, StagedChanges
from tidemark.stream_runtime.clock import Clock

Int8Array = npt.NDArray[np.int8]
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class OutRows:
    """Rows to emit, as columns of equal length.

    ``row``: position in the batch. ``location``: file group, `NO_LOCATION` where it is unknown. ``op``:
    `DataOp` or `IndexOp`. ``ordering`` is meaningful where ``has_ordering``; ``exact``: it is no lower
    bound.
    """

    row: Int64Array
    location: Int32Array
    op: Int8Array
    ordering: Int64Array
    has_ordering: BoolArray
    exact: BoolArray

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class TaggedBatch:
    """``data`` has `DataOp`s, ``index`` has `IndexOp`s; ``tombstones`` end at ``expires_ms`` (since 1970).

    ``staged``: per lane the changes that its index must show before the next batch is tagged.
    """

    batch: KeyedBatch
    data: OutRows
    index: OutRows
    tombstones: OutRows
    expires_ms: int
    counts: Counts
    staged: dict[int, StagedChanges]


@dataclass(frozen=True)
class _Judged:
    """One lane's decisions, one element per key.

    ``row``: position in the whole batch. ``location``: before the batch. ``deleted_from``: of an absent
    key, the location that its tombstone names.
    """

    lane: int
    row: Int64Array
    location: Int32Array
    tagged: TaggedKeys
    deleted_from: Int32Array
    superseded: int

    def where(self, *tags: Tag) -> npt.NDArray[np.int64]:
        return np.flatnonzero(_is_one_of(self.tagged.tag, tags))


def _is_one_of(tag: Int8Array, tags: tuple[Tag, ...]) -> BoolArray:
    # numpy's isin sorts, which for small batches costs more than one comparison per tag.
    matches: BoolArray = tag == tags[0]
    for other in tags[1:]:
        matches |= tag == other
    return matches


class BatchTagger:
    """Tags batches, on the thread that owns the index. Changes nothing in the index except its caches."""

    def __init__(
        self,
        index: KeyIndex,
        locations: Locations,
        placement: Placement,
        clock: Clock,
        ordered: bool,
        tombstone_ttl_ms: int,
        partitioned: bool = False,
    ) -> None:
        """``partitioned``: the record index is, so a key may have a row in each partition."""
        self._partitioned = partitioned
        self._index = index
        self._locations = locations
        self._placement = placement
        self._clock = clock
        self._ordered = ordered
        self._tombstone_ttl_ms = tombstone_ttl_ms

    def tag(self, batch: KeyedBatch) -> TaggedBatch:
        """Tags the batch. Raises what `KeyIndex.lookup`, `KeyIndex.exact_ordering` and `Placement.place`
        raise.
        """
        judged = [self._judge(batch, span) for span in batch.lanes]
        placed = self._place(batch, judged)
        expires_ms = self._clock.latest_ms() + self._tombstone_ttl_ms
        keys = batch.rows.column(KEY)
        shards = batch.partitions if self._partitioned else _int32(batch.rows.column(SHARD))
        staged = {
            of_lane.lane: _staged(of_lane, after, keys, shards, expires_ms, self._ordered)
            for of_lane, after in zip(judged, placed, strict=True)
        }
        return TaggedBatch(
            batch=batch,
            data=_concat([_data_rows(j, after) for j, after in zip(judged, placed, strict=True)]),
            index=_concat([_index_rows(j, a, self._ordered) for j, a in zip(judged, placed, strict=True)]),
            tombstones=_concat([_tombstone_rows(j, self._ordered) for j in judged]),
            expires_ms=expires_ms,
            counts=_counts(batch, judged),
            staged=staged,
        )

    def _judge(self, batch: KeyedBatch, span: LaneSpan) -> _Judged:
        rows = batch.rows.slice(span.start, span.end - span.start)
        keys = rows.column(KEY)
        deletes = rows.column(OP).to_numpy() == KeyedOp.DELETE
        partitions = batch.partitions[span.start : span.end]
        of_pairs = partitions if self._partitioned else None
        events = reduce_batch(keys, rows.column(ORDERING), deletes, self._ordered, of_pairs)
        unique = keys if len(events.rows) == len(keys) else keys.take(pa.array(events.rows))
        shards = partitions if self._partitioned else _int32(rows.column(SHARD))
        answer = self._index.lookup(span.lane, unique, shards[events.rows])
        stored = answer.stored
        deletes = deletes[events.rows]
        partitions = partitions[events.rows]
        # A delete's partition is ignored: the key is deleted in the partition where the index has it. With a
        # partitioned index that is the event's own, so nothing moves.
        moves = stored.present & ~deletes & (self._locations.partitions_of(stored.location) != partitions)
        stored = self._with_exact(span.lane, unique, events, deletes, moves, stored)
        return _Judged(
            lane=span.lane,
            row=events.rows + span.start,
            location=np.where(stored.present, stored.location, np.int32(NO_LOCATION)),
            tagged=tag_events(events, deletes, moves, stored, self._ordered),
            deleted_from=answer.deleted_from,
            superseded=events.superseded,
        )

    def _with_exact(
        self,
        lane: int,
        keys: pa.StringArray,
        events: EffectiveEvents,
        deletes: BoolArray,
        moves: BoolArray,
        stored: StoredKeys,
    ) -> StoredKeys:
        at = np.flatnonzero(needs_exact(events, deletes, moves, stored, self._ordered))
        if not len(at):
            return stored
        ordering, has_ordering = stored.ordering.copy(), stored.has_ordering.copy()
        exact = stored.exact.copy()
        ordering[at] = self._index.exact_ordering(lane, keys.take(pa.array(at)), stored.location[at])
        has_ordering[at] = exact[at] = True
        return replace(stored, ordering=ordering, has_ordering=has_ordering, exact=exact)

    def _place(self, batch: KeyedBatch, judged: list[_Judged]) -> list[Int32Array]:
        """Returns per lane the keys' locations after the batch, `NO_LOCATION` for deleted keys.

        The inserts of all lanes are placed together, so that the coordinator is asked once.
        """
        goes = [of_lane.where(Tag.INSERT, Tag.MOVE) for of_lane in judged]
        rows = _joined([of_lane.row[at] for of_lane, at in zip(judged, goes, strict=True)], np.int64)
        wanted = batch.partitions[rows]
        placed = self._placement.place(wanted, batch.rows.nbytes // max(len(batch), 1))
        if self._ordered:
            ordering = [of_lane.tagged.ordering[at] for of_lane, at in zip(judged, goes, strict=True)]
            keys = batch.rows.column(KEY).take(pa.array(rows))
            self._keep_apart(keys, _joined(ordering, np.int64), wanted, placed)
        after = []
        for of_lane, at in zip(judged, goes, strict=True):
            location = of_lane.location.copy()
            location[at], placed = placed[: len(at)], placed[len(at) :]
            location[of_lane.where(Tag.DELETE)] = NO_LOCATION
            after.append(location)
        return after

    def _keep_apart(
        self, keys: pa.StringArray, ordering: Int64Array, partitions: Int32Array, placed: Int32Array
    ) -> None:
        """Moves rows, in ``placed``, that a delete in their file group would hide, to an isolated file group.

        If a delete in that one hides rows as well, those go to a fresh one, which has no deletes.
        """
        at = np.flatnonzero(self._index.is_masked_by_delete(keys, placed, ordering))
        for fresh in (False, True):
            if not len(at):
                return
            placed[at] = self._placement.isolated(partitions[at], fresh)
            at = at[self._index.is_masked_by_delete(keys.take(pa.array(at)), placed[at], ordering[at])]


def _data_rows(judged: _Judged, after: Int32Array) -> OutRows:
    deletes = judged.where(Tag.DELETE, Tag.MOVE)
    inserts = judged.where(Tag.INSERT, Tag.MOVE)
    updates = judged.where(Tag.UPDATE)
    return _concat(
        [
            _rows(judged, deletes, judged.location, DataOp.DELETE),
            _rows(judged, inserts, after, DataOp.INSERT),
            _rows(judged, updates, after, DataOp.UPDATE),
        ]
    )


def _index_rows(judged: _Judged, after: Int32Array, ordered: bool) -> OutRows:
    parts = [
        _rows(judged, judged.where(Tag.DELETE), judged.location, IndexOp.DELETE),
        _rows(judged, judged.where(Tag.INSERT, Tag.MOVE), after, IndexOp.UPSERT),
    ]
    if ordered:
        parts.append(_rows(judged, judged.where(Tag.UPDATE), after, IndexOp.UNCHANGED))
    return _concat(parts)


def _tombstone_rows(judged: _Judged, ordered: bool) -> OutRows:
    at = _with_tombstone(judged, ordered)
    came_from = np.where(judged.tagged.tag == Tag.DELETE, judged.location, judged.deleted_from)
    return _rows(judged, at, came_from.astype(np.int32), 0)


def _with_tombstone(judged: _Judged, ordered: bool) -> npt.NDArray[np.int64]:
    if not ordered:
        return np.empty(0, np.int64)
    gone = _is_one_of(judged.tagged.tag, (Tag.DELETE, Tag.NO_OP))
    return np.flatnonzero(gone & judged.tagged.has_ordering)


def _staged(
    judged: _Judged,
    after: Int32Array,
    keys: pa.StringArray,
    shards: Int32Array,
    expires_ms: int,
    ordered: bool,
) -> StagedChanges:
    """The changes that the lane's index stages: the same as a later owner reads from index and tombstone
    rows.
    """
    changed = [Tag.INSERT, Tag.MOVE, Tag.DELETE, *([Tag.UPDATE] if ordered else [])]
    at = np.union1d(judged.where(*changed), _with_tombstone(judged, ordered))
    row, tagged = judged.row[at], judged.tagged
    came_from = np.where(tagged.tag == Tag.DELETE, judged.location, judged.deleted_from)
    return StagedChanges(
        keys=keys.take(pa.array(row)),
        shards=shards[row],
        location=after[at],
        ordering=tagged.ordering[at],
        has_ordering=tagged.has_ordering[at],
        exact=tagged.exact[at],
        deleted_from=came_from[at].astype(np.int32),
        expires_ms=np.full(len(at), expires_ms, np.int64),
    )


def _counts(batch: KeyedBatch, judged: list[_Judged]) -> Counts:
    tags = np.bincount(_joined([j.tagged.tag for j in judged], np.int8), minlength=len(Tag)).tolist()
    return Counts(
        input=batch.records,
        inserts=tags[Tag.INSERT],
        updates=tags[Tag.UPDATE] + tags[Tag.MOVE],
        deletes=tags[Tag.DELETE],
        moves=tags[Tag.MOVE],
        superseded=tags[Tag.SUPERSEDED] + sum(j.superseded for j in judged),
        no_ops=tags[Tag.NO_OP],
        dead_letters=batch.dead_letters,
    )


def _rows(judged: _Judged, at: npt.NDArray[np.int64], location: Int32Array, op: int) -> OutRows:
    tagged = judged.tagged
    return OutRows(
        row=judged.row[at],
        location=location[at],
        op=np.full(len(at), op, np.int8),
        ordering=tagged.ordering[at],
        has_ordering=tagged.has_ordering[at],
        exact=tagged.exact[at],
    )


def _concat(parts: list[OutRows]) -> OutRows:
    return OutRows(
        row=_joined([p.row for p in parts], np.int64),
        location=_joined([p.location for p in parts], np.int32),
        op=_joined([p.op for p in parts], np.int8),
        ordering=_joined([p.ordering for p in parts], np.int64),
        has_ordering=_joined([p.has_ordering for p in parts], np.bool_),
        exact=_joined([p.exact for p in parts], np.bool_),
    )


def _joined(parts: list[npt.NDArray[_Number]], dtype: type[_Number]) -> npt.NDArray[_Number]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _int32(column: pa.Array) -> Int32Array:
    values: Int32Array = column.to_numpy()
    return values
