"""The document behind `tidemark status`: who is there, what is behind, what is in flight, what warns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from commit_coordinator.history import EpochHistory
from commit_coordinator.members import Members
from commit_coordinator.placement import Placement
from commit_coordinator.view import CoordinatorView, ViewBoard
from epoch_protocol.entries import Stage
from epoch_protocol.lanes import parse_shuffle_lane
from hudi_format.storage.base import Storage
from hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT
from stream_runtime.clock import Clock
from stream_runtime.kafka.ports import Admin, Isolation, KafkaClient, TopicPartition

_TIMELINE_FILES_WARN: Final = 3_000
_LOOKS_MAX: Final = 20
_LOOK_S: Final = 0.05


@dataclass(frozen=True)
class StatusSource:
    """Everything the document is made of."""

    table: str
    path: str
    board: ViewBoard
    members: Members
    history: EpochHistory
    placement: Placement
    storage: Storage
    clock: Clock
    input_ends: Callable[[], Mapping[str, int]]
    writer_asked: Callable[[], int]

    def document(self) -> dict[str, Any]:
        """The document; plain JSON types, times in epoch milliseconds, sizes in bytes."""
        view = self.board.current
        newest = self.history.newest(1)
        return {
            "table": self.table,
            "path": self.path,
            "coordinator": {
                "term": view.term,
                "doing": view.doing,
                "waiting_for": view.waiting_for,
                "halted": view.halted,
                "generation": view.generation,
                "rewinds": self.history.rewinds(),
            },
            "services": {stage.value: self._services(stage) for stage in Stage},
            "writer": {"asked": self.writer_asked()},
            "paused": {"paused": view.paused, "reason": view.pause_reason},
            "last_commit": {
                "epoch": view.epoch,
                "instant": view.instant,
                "completion": view.completion,
                "detail": newest[0] if newest else None,
            },
            "in_flight": self._in_flight(view),
            "lag": self._lag(view),
            "records": {
                "shuffled": view.shuffled_records,
                "dead_letters": view.dead_letters
                + view.committed.dead_letters
                + view.uncommitted.dead_letters,
                "committed": msgspec.to_builtins(view.committed),
                "uncommitted": msgspec.to_builtins(view.uncommitted),
            },
            "file_groups": self.placement.figures(),
            "warnings": self._warnings(view),
        }

    def _services(self, stage: Stage) -> list[dict[str, Any]]:
        lanes = self.members.leases(stage)
        return [
            {
                "slot": member.slot,
                "process": member.process_id,
                "address": member.address,
                "lanes": sorted(name for name, (_, slot) in lanes.items() if slot == member.slot),
                "uncommitted_entries": member.uncommitted_entries,
                "figures": member.figures,
            }
            for member in self.members.members(stage)
        ]

    def _in_flight(self, view: CoordinatorView) -> dict[str, Any]:
        waits_for_writer = view.doing == "Wait" and "writer" in view.waiting_for
        return {
            "epoch": view.planned_epoch,
            "attempt": view.planned_attempt,
            "instant": view.planned_instant,
            "age_ms": self.clock.now_ms() - view.planned_ms if view.planned_ms else None,
            "not_reported": ["writer"] if waits_for_writer else [],
            "transactions": view.uncommitted_transactions,
            "bytes": view.uncommitted_bytes,
        }

    def _lag(self, view: CoordinatorView) -> dict[str, Any]:
        ends = self.input_ends()
        shuffled = sum(max(end - view.taken_next.get(lane, 0), 0) for lane, end in ends.items())
        committed = sum(max(end - view.source_next.get(lane, 0), 0) for lane, end in ends.items())
        return {"input_offsets_not_shuffled": shuffled, "input_offsets_not_committed": committed}

    def _warnings(self, view: CoordinatorView) -> list[str]:
        warnings = []
        if view.halted:
            warnings.append(f"halted: {view.halted}")
        for stage in Stage:
            idle = [lane for lane, (_, slot) in self.members.leases(stage).items() if slot is None]
            if idle:
                warnings.append(f"{len(idle)} {stage.value} lanes have no owner: start an assigner")
        if view.planned_epoch is not None and not self.writer_asked():
            warnings.append("no writer has asked for work yet: start one, or wait until its Spark is up")
        for root, what in ((DATA_ROOT, "table"), (METADATA_TABLE_ROOT, "metadata table")):
            files = len(self.storage.list(f"{root}/timeline"))
            if files > _TIMELINE_FILES_WARN:
                warnings.append(
                    f"the {what}'s timeline has {files} files: let Hudi on Spark compact and archive it"
                )
        return warnings


def holds_records(client: KafkaClient, admin: Admin, lane: str, first: int, end: int) -> bool:
    """Whether a committed record lies in [first, end) of an input lane; True when it cannot be told in time.

    Markers and aborted records of transactional producers use offsets, too, and no position moves past them
    before the next record comes; of what retention deleted there is nothing to wait for either.
    """
    partition = TopicPartition(*parse_shuffle_lane(lane))
    first = max(first, admin.start_offset(partition))
    if first >= end:
        return False
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    try:
        reader.assign({partition: first})
        for _ in range(_LOOKS_MAX):
            if reader.poll(1, _LOOK_S):
                return True
            if reader.position(partition) >= end:
                return False
        return True
    finally:
        reader.close()


def input_ends(admin: Admin, lanes: list[str]) -> dict[str, int]:
    """Per input lane the read_committed end: what a flush called now has to cover."""
    ends = {}
    for lane in lanes:
        topic, partition = parse_shuffle_lane(lane)
        ends[lane] = admin.end_offset(TopicPartition(topic, partition), Isolation.READ_COMMITTED)
    return ends
