"""Bugs in the cache tiers, in ordering values and tombstones, and in the files that writers make."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import numpy as np

from tests.simulation.planted.mutant import Ground, planted
from tidemark.epoch_protocol.state import FoldState
from tidemark.epoch_protocol.tombstones import CommittedTombstones
from tidemark.hudi_format.commit.markers import create_marker_list
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.index_assigner.assign import tagger
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.domain.tag import StoredKeys, Tag, TaggedKeys, tag_events
from tidemark.index_assigner.index.held_lane import HeldLane
from tidemark.index_assigner.index.promotion import Promotion
from tidemark.index_assigner.index.replaced_groups import ReplacedGroups
from tidemark.index_assigner.index.rocks_layout import TOMBSTONE
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.index_assigner.runs.writing import RunWriter
from tidemark.stream_writer import data_task
from tidemark.stream_writer.data_task import DataPartitionWriter


@planted("G1", "G2")
def evicted_before_a_snapshot_has_it(ground: Ground) -> None:
    """3.4: an entry may leave RocksDB only when the MDT snapshot in use includes it. Here, at the disk limit,
    shards are dropped and opened again with the snapshot from before the promotion.
    """
    real_bring = TieredIndex._bring_to

    def bring_to(self: TieredIndex, held: HeldLane, snapshot: MetadataTableSnapshot) -> None:
        real_bring(self, held, snapshot)
        self.__dict__.setdefault("planted_used", {})[held.number] = snapshot

    def keep_to_disk_limit(self: TieredIndex) -> None:
        if self._promotion.fits():
            return
        for held in self._held.values():
            used = self.__dict__["planted_used"][held.number]
            for number in list(held.shards):
                self._store.drop(number)
                held.shards[number] = self._store.open(number, used.shard(number), used, held.shown)
            self._hot.drop_shards(held.shards)

    ground.replace(TieredIndex, "_bring_to", bring_to)
    ground.replace(TieredIndex, "_keep_to_disk_limit", keep_to_disk_limit)


@planted("G1", "G2")
def memory_forgotten_before_rocksdb_has_it(ground: Ground) -> None:
    """3.4: promotion writes entries to RocksDB, then memory forgets them. Here memory forgets alone."""
    real = Promotion._promote_shard

    def promote_shard(self: Promotion, shard: Any, chosen: Any, completion: Any, passed: bool) -> None:
        real(self, shard, replace(chosen, slots=chosen.slots[:0]), completion, passed)
        for keys, _ in chosen.parts():
            self._hot.remove(keys)

    ground.replace(Promotion, "_promote_shard", promote_shard)


@planted("G1", "G2")
def ordering_of_an_update_taken_for_the_stored_one(ground: Ground) -> None:
    """3.2: a value learnt from an update whose stored value is a lower bound is only a better lower bound.
    Here it counts as exact: a late delete or move is held against it, and not against the row.
    """

    def tag(*args: Any) -> TaggedKeys:
        tagged = tag_events(*args)
        return replace(tagged, exact=tagged.has_ordering)

    ground.replace(tagger, "tag_events", tag)


@planted("G1", "G2")
def rewound_tombstones_count(ground: Ground) -> None:
    """3.2, step 3: tombstones are those of counting transactions. Here all in the topic hold: that of a
    null-value delete outlives the tag, and the row, that it took its ordering value from.
    """
    real = LaneOpener._load_tombstones

    def load_tombstones(self: LaneOpener, lane: int, state: FoldState) -> None:
        real(self, lane, msgspec.structs.replace(state, tombstones=CommittedTombstones(), tagged=[]))

    ground.replace(LaneOpener, "_load_tombstones", load_tombstones)


@planted("G1", "G2")
def tombstones_forgotten(ground: Ground) -> None:
    """3.2, step 3: keys that are absent ask the tombstones. Here there are none: what is older than a delete
    comes back.
    """

    def get(self: TombstoneStore, keys: list[bytes]) -> Any:
        return np.zeros(len(keys), np.bool_), np.zeros(len(keys), TOMBSTONE)

    ground.replace(TombstoneStore, "get", get)


@planted("G1", "G2")
def tie_with_a_tombstone_superseded(ground: Ground) -> None:
    """3.2, step 3: an event below the stored ordering value changes nothing; one that reaches it counts. Here
    an event that ties with its key's tombstone is lost, too.
    """

    def tag(events: Any, deletes: Any, moves: Any, stored: StoredKeys, ordered: bool) -> TaggedKeys:
        tagged = tag_events(events, deletes, moves, stored, ordered)
        ties = stored.has_ordering & events.has_ordering & (events.ordering == stored.ordering)
        lost = (tagged.tag == Tag.INSERT) & ties
        return replace(tagged, tag=np.where(lost, Tag.SUPERSEDED, tagged.tag).astype(np.int8))

    ground.replace(tagger, "tag_events", tag)


def _name_by_try(ground: Ground) -> None:
    tries = count(1)
    real = DataPartitionWriter.__init__

    def init(self: DataPartitionWriter, *args: Any) -> None:
        real(self, *args)
        self._token = f"{self._number}-0-{next(tries)}"

    ground.replace(DataPartitionWriter, "__init__", init)


@planted("G1", "G2")
def part_of_a_base_file_counts_as_its_run(ground: Ground) -> None:
    """3.4: a run is published whole, so a key that it does not have is absent. Here it has the first block
    alone: keys of the others are inserted once more.
    """
    real = RunWriter.add

    def add(self: RunWriter, first_keys: Any, keys: Any, locations: Any, ordering: Any, ends: Any) -> None:
        real(self, first_keys[:1], keys[: ends[0]], locations[: ends[0]], ordering, ends[:1])

    ground.replace(RunWriter, "add", add)


@planted("G1", "G5")
def file_of_a_losing_try_committed(ground: Ground) -> None:
    """4, Write: a file's name comes from instant, file group and topic-partition, so that two tries of a task
    make one file. Here each try has a name of its own, and files of both tries lie in the table.

    Names alone change nothing: markers come first and name the files, those of the second try differ, and it
    ends there. So this takes that away, too.
    """
    _name_by_try(ground)

    def publish_markers(by: Any, instant: str, number: int, announced: Any) -> None:
        with contextlib.suppress(TimelineConflictError):
            create_marker_list(by, instant, number, announced)

    ground.replace(data_task, "publish_markers", publish_markers)


@planted("unexpected", "G1", "G6")
def left_entry_taken_for_a_row(ground: Ground) -> None:
    """3.4: an index entry that was left behind in a replaced file group is none. Here it is one: its row is
    looked for where there is none, or written where nobody reads.
    """
    ground.replace(ReplacedGroups, "hold", lambda _, locations: np.zeros(len(locations), np.bool_))
