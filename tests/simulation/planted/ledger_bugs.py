"""Bugs in what counts, and in how an owner takes up a lane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from tests.simulation.planted.mutant import Ground, planted
from tidemark.epoch_protocol import fold as fold_module
from tidemark.epoch_protocol.batches import BatchHeader, IndexOp, decode_batch
from tidemark.epoch_protocol.entries import Consumed, Stage, Topic
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.state import CountedTagged, FoldState
from tidemark.index_assigner.assign import tagger
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.assign.work import AssignWork
from tidemark.index_assigner.domain.tag import Tag
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.shuffle import stage as shuffle_stage
from tidemark.index_assigner.shuffle.stage import ShuffleWork
from tidemark.ledger_client.named_batches import NamedBatch
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition


def _newest_claim_only_for_the_position(
    self: Fold, stage: Stage, terms: dict[str, int], consumed: Iterable[Consumed]
) -> Verdict:
    lanes = self._lanes(stage)
    for part in consumed:
        lane = lanes.get(part.lane)
        if lane is None or not fold_module._continues(lane, part):
            return Verdict.STALE_POSITION
    return Verdict.COUNTS


@planted("G1", "G2", "G3", "G6", "G8")
def older_claim_counts(ground: Ground) -> None:
    """3.3: a transaction counts only with the newest claim's term. Here any claim's will do, as long as the
    consumed range goes on where the lane stands: two owners tag a lane, each without the other's entries.
    """
    ground.replace(Fold, "_counts", _newest_claim_only_for_the_position)


@planted("G1", "G2", "G6", "G8")
def range_need_not_start_at_next(ground: Ground) -> None:
    """3.3: a consumed range counts only when it starts at the lane's `next`. Here it may start anywhere.

    Owners always start at `next`, and within a term read forward alone; so by itself this changes nothing,
    until a claim is held by two. Therefore it comes with owners that start from consumer offsets: those alone
    leave the lane standing at the hole, and with this rule broken too the table goes on past it.
    """
    ground.replace(fold_module, "_continues", lambda lane, part: True)
    _start_from_group_offsets(ground)


@planted("G6")
def start_from_group_offsets(ground: Ground) -> None:
    """3.3: a successor starts at the fold's `next`. Here it starts where the last owner had read to, as a
    consumer group's offsets would tell. What an uncounted transaction had read would be skipped; that a range
    has to start at `next` refuses it, so nothing is lost, and the lane stands still for ever.
    """
    _start_from_group_offsets(ground)


def _start_from_group_offsets(ground: Ground) -> None:
    offsets: dict[str, int] = {}
    for work, marks in ((AssignWork, "assign"), (ShuffleWork, "shuffle")):
        real_start, real_prepare = work.start, work.prepare

        def start(
            self: Any, lanes: Mapping[str, int], *suspects: Any, real: Any = real_start, mark: str = marks
        ) -> None:
            started = {lane: max(at, offsets.get(f"{mark} {lane}", 0)) for lane, at in lanes.items()}
            real(self, started, *suspects)

        def prepare(self: Any, nonce: str, real: Any = real_prepare, mark: str = marks) -> Any:
            prepared = real(self, nonce)
            for part in prepared.consumed if prepared is not None else ():
                offsets[f"{mark} {part.lane}"] = part.next
            return prepared

        ground.replace(work, "start", start)
        ground.replace(work, "prepare", prepare)


@planted("G1", "G2")
def start_from_the_table_alone(ground: Ground) -> None:
    """3.3, 3.4: a successor rebuilds the entries of counting transactions that no committed epoch covers.
    Here it knows the table and nothing else: keys that the former owner inserted are inserted once more.
    """
    ground.replace(LaneOpener, "_load_counted", lambda self, lane, chunk: None)


@planted("G1", "G2", "G3", "G6")
def index_topic_read_to_its_end(ground: Ground) -> None:
    """3.3: what exists is what counting entries name. Here a successor takes all of the index topic from the
    first named message on, whoever wrote it. Where that
    leads to rows for a file group that has no files, the writer refuses, and the epoch never ends (G6).
    """

    def read(
        self: LaneOpener, topic: Topic, name: str, lane: int, chunk: Sequence[CountedTagged]
    ) -> list[NamedBatch]:
        partition = TopicPartition(name, lane)
        parts = [p for t in chunk for p in t.entry.produced if (p.topic, p.partition) == (topic, lane)]
        if not parts:
            return []
        orders = {counted.entry.nonce: counted.offset for counted in chunk}
        end = self._admin.end_offset(partition, Isolation.READ_COMMITTED)
        reader = self._client.partition_reader(Isolation.READ_COMMITTED)
        reader.assign({partition: min(part.first for part in parts)})
        found = []
        while reader.position(partition) < end:
            for message in reader.poll(100, 0.1):
                header = BatchHeader.decode(message.headers)
                order = orders.get(header.nonce, chunk[-1].offset)
                batch = decode_batch(message.value or b"")
                found.append(NamedBatch(order, header.sequence, message.offset, batch))
        reader.close()
        return found

    ground.replace(LaneOpener, "_read", read)


@planted("G1", "G2", "G3", "G6")
def uncounted_entries_promoted(ground: Ground) -> None:
    """3.3, 3.4: after an abort, a doubt or an uncounted entry an owner drops all that it holds for the lane.
    Here it keeps what it had staged: entries of a transaction that does not count go on with the next one
    that does, and are promoted with it. Where that
    leads to rows for a file group that has no files, the writer refuses, and the epoch never ends (G6).
    """
    real_prepare, real_open = AssignWork.prepare, LaneOpener.open

    def prepare(self: AssignWork, nonce: str) -> Any:
        index = self._parts.index
        real_stage = index.stage
        staged: dict[int, StagedChanges] = index.__dict__.setdefault("planted_staged", {})

        def stage(lane: int, changes: StagedChanges) -> None:
            staged[lane] = changes
            real_stage(lane, changes)

        with patch.object(index, "stage", stage):
            return real_prepare(self, nonce)

    def open_again(self: LaneOpener, lanes: Sequence[int], state: FoldState) -> None:
        real_open(self, lanes, state)
        staged = self._index.__dict__.get("planted_staged", {})
        for lane in lanes:
            if lane in staged:
                self._index.stage(lane, staged[lane])

    ground.replace(AssignWork, "prepare", prepare)
    ground.replace(LaneOpener, "open", open_again)


@planted("G3")
def index_record_of_a_move_left_out(ground: Ground) -> None:
    """3.2: each data row has its index record in the same transaction. Here a row that moves to another
    partition has none: table and index would go apart with the commit.
    """

    def index_rows(judged: Any, after: Any, ordered: bool) -> Any:
        parts = [
            tagger._rows(judged, judged.where(Tag.DELETE), judged.location, IndexOp.DELETE),
            tagger._rows(judged, judged.where(Tag.INSERT), after, IndexOp.UPSERT),
        ]
        if ordered:
            parts.append(tagger._rows(judged, judged.where(Tag.UPDATE), after, IndexOp.UNCHANGED))
        return tagger._concat(parts)

    ground.replace(tagger, "_index_rows", index_rows)


@planted("G8")
def dead_letter_dropped(ground: Ground) -> None:
    """3.1: a record that cannot be taken goes to the dead-letter topic in the same transaction. Here it is
    counted and goes nowhere.
    """
    ground.replace(shuffle_stage, "dead_letters", lambda *args: [])


@planted("G8")
def stale_event_not_counted(ground: Ground) -> None:
    """G8: every input record ends in exactly one count. Here events that lost against another one of the same
    batch are forgotten.
    """
    real = tagger._counts

    def counts(batch: Any, judged: Any) -> Any:
        found = real(batch, judged)
        lost = sum(each.superseded for each in judged)
        return msgspec.structs.replace(found, superseded=found.superseded - lost)

    ground.replace(tagger, "_counts", counts)
