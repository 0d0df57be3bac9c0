"""The document behind `tidemark status`: who is there, what is behind, what is in flight, what warns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

import msgspec

from tidemark.commit_coordinator.calls.farewells import Farewell
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.dead_letters.retention import expiry_warning
from tidemark.commit_coordinator.input.stopped_lanes import stopped_documents, stopped_warnings
from tidemark.commit_coordinator.input.watch import InputWatch
from tidemark.commit_coordinator.status.asked_kafka import ASK_S, AskedKafka
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.status.open_transactions import OpenTransaction
from tidemark.commit_coordinator.status.table_services import table_services
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.epoch_protocol.dropped_fields import DROPPED_FIGURE, DroppedField, dropped_fields
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.stream_runtime.clock import Clock

KAFKA_SILENT: Final = "lag and open transactions are unknown: "
_FIELDS_SHOWN: Final = 20
_OF_KAFKA: Final = ("lag", "open_transaction")


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
    kafka: AskedKafka
    writer_asked: Callable[[], int]
    verification: PeriodicVerification
    writer: Callable[[], str]
    not_reported: Callable[[], list[str]]
    open_transaction: Callable[[], OpenTransaction | None]
    farewells: Callable[[], list[Farewell]]
    lease_ms: int
    stopped_lanes: Callable[[], Sequence[StoppedLane]] = tuple
    letters: Callable[[], LetterRetention | None] = lambda: None
    inputs: InputWatch | None = None
    refused: Callable[[], Mapping[str, int]] = dict
    """Calls turned away, by reason (`tidemark.stream_runtime.security.access`)."""
    unfilled_columns: Callable[[], Sequence[str]] = list
    """Columns of the table that `table.schema` lacks."""

    def document(self, kafka_s: float = ASK_S) -> dict[str, Any]:
        """The document; plain JSON types, times in epoch milliseconds, sizes in bytes.

        ``kafka_s``: how long Kafka may take; what it does not say is None, and named in `missing`.
        """
        view = self.board.current
        newest = self.history.newest(1)
        facts = self.kafka.ask(view, kafka_s)
        blocker, dropped, letters = self._blocker(facts.open_transaction), self._dropped(), self.letters()
        services, left, stopped = self._table_services(), self.farewells(), self.stopped_lanes()
        missing = [{"part": part, "reason": facts.missing} for part in _OF_KAFKA if facts.missing]
        missing += [{"part": "table_services", "reason": each} for each in services.get("warnings", [])]
        return {
            "table": self.table,
            "path": self.path,
            "coordinator": self._coordinator(view),
            "services": {stage.value: self._services(stage) for stage in Stage},
            "writer": {"asked": self.writer_asked(), "process": self.writer()},
            "gave_up": [_farewell(each) for each in left],
            "stopped_lanes": stopped_documents(stopped),
            "dead_letters": asdict(letters) if letters else None,
            "open_transaction": blocker,
            "table_services": services,
            "paused": {"paused": view.paused, "reason": view.pause_reason},
            "last_commit": {
                "epoch": view.epoch,
                "instant": view.instant,
                "completion": view.completion,
                "detail": newest[0] if newest else None,
            },
            "in_flight": self._in_flight(view),
            "lag": dict(facts.lag) if facts.lag is not None else None,
            "records": {
                "shuffled": view.shuffled_records,
                "dead_letters": view.dead_letters
                + view.committed.dead_letters
                + view.uncommitted.dead_letters,
                "committed": msgspec.to_builtins(view.committed),
                "uncommitted": msgspec.to_builtins(view.uncommitted),
            },
            "file_groups": self.placement.figures(),
            "verification": self.verification.document(),
            "refused_calls": dict(self.refused()),
            "input_topics": self.inputs.document() if self.inputs is not None else {},
            "dropped_fields": [each._asdict() for each in dropped],
            "missing": missing,
            "warnings": [
                *([f"{KAFKA_SILENT}{facts.missing}"] if facts.missing else []),
                *self._warnings(view),
                *self._unfilled(),
                *dropped_warnings(dropped),
                *stopped_warnings(each for each in stopped if not each.reason.is_of_topic),
                *expiry_warning(letters),
                *(self.inputs.warnings() if self.inputs is not None else []),
                *self.verification.warnings(),
                *(f"{e.stage.value} stage: {e.process_id} has stopped: {e.reason}" for e in left),
                *blocked_readers(blocker, self.lease_ms),
                *services.get("warnings", []),
            ],
        }

    def _coordinator(self, view: CoordinatorView) -> dict[str, Any]:
        return {
            "term": view.term,
            "doing": view.doing,
            "waiting_for": view.waiting_for,
            "halted": view.halted,
            "stopped": view.stopped,
            "blocked_epoch": view.blocked_epoch,
            "trouble": view.trouble,
            "generation": view.generation,
            "rewinds": self.history.rewinds(),
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
                "figures": {n: v for n, v in member.figures.items() if not n.startswith(DROPPED_FIGURE)},
            }
            for member in self.members.members(stage)
        ]

    def _in_flight(self, view: CoordinatorView) -> dict[str, Any]:
        return {
            "epoch": view.planned_epoch,
            "attempt": view.planned_attempt,
            "instant": view.planned_instant,
            "age_ms": self.clock.now_ms() - view.planned_ms if view.planned_ms else None,
            "not_reported": self._not_reported(),
            "transactions": view.uncommitted_transactions,
            "bytes": view.uncommitted_bytes,
        }

    def _warnings(self, view: CoordinatorView) -> list[str]:
        warnings = []
        if view.halted:
            warnings.append(f"halted: {view.halted}")
        if view.trouble:
            warnings.append(view.trouble)
        if view.lock_held:
            warnings.append(f"commits wait: {view.lock_held}")
        if view.awaited:
            warnings.append(f"commits wait: {view.awaited}")
        for stage in Stage:
            idle = [lane for lane, (_, slot) in self.members.leases(stage).items() if slot is None]
            if idle:
                warnings.append(f"{len(idle)} {stage.value} lanes have no owner: start an assigner")
            for member in self.members.members(stage):
                if member.figures.get("input_waits"):
                    warnings.append(
                        f"{stage.value} slot {member.slot} waits before it can decode its input (the schema "
                        "registry): its log says why"
                    )
        if view.planned_epoch is not None and not self.writer_asked():
            warnings.append("no writer has asked for work yet: start one, or wait until its Spark is up")
        return warnings

    def _unfilled(self) -> list[str]:
        names = ", ".join(self.unfilled_columns())
        if not names:
            return []
        return [
            f"the table has columns that table.schema lacks ({names}): rows that Tidemark writes have no "
            "value there, other rows keep theirs. Add them to table.schema and restart, if the input has them"
        ]

    def _dropped(self) -> list[DroppedField]:
        """What live members leave out of the input; by topic, what is left out most first."""
        counts: Counter[tuple[str, str]] = Counter()
        for stage in Stage:
            for member in self.members.members(stage):
                for each in dropped_fields(member.figures):
                    counts[each.topic, each.field] += each.records
        found = [DroppedField(*place, records) for place, records in counts.items()]
        return sorted(found, key=lambda each: (each.topic, -each.records, each.field))

    def _table_services(self) -> dict[str, Any]:
        try:
            return table_services(self.storage)
        except (OSError, HudiFormatError) as error:
            # Storage that refuses is what `status` is asked about.
            return {"warnings": [f"the table's timelines cannot be listed: {error}"]}

    def _not_reported(self) -> list[str]:
        try:
            return self.not_reported()
        except (OSError, HudiFormatError) as error:
            return [f"writer {self.writer()} (the table's folder cannot be listed: {error})"]

    def _blocker(self, found: OpenTransaction | None) -> dict[str, Any] | None:
        """The oldest open transaction, and the process in its slot."""
        if found is None:
            return None
        members = [each for each in self.members.members(found.stage) if each.slot == found.slot]
        return {
            "stage": found.stage.value,
            "slot": found.slot,
            "process": members[0].process_id if members else None,
            "address": members[0].address if members else None,
            "ledger_offset": found.offset,
            "age_ms": found.age_ms,
        }


def _farewell(left: Farewell) -> dict[str, Any]:
    return {
        "stage": left.stage.value,
        "process": left.process_id,
        "reason": left.reason,
        "at_ms": left.at_ms,
    }


def dropped_warnings(dropped: Iterable[DroppedField]) -> list[str]:
    """One a topic; ``dropped`` by topic."""
    warnings = []
    for topic, of_topic in groupby(dropped, lambda each: each.topic):
        fields = list(of_topic)
        named = ", ".join(f"{each.field} ({each.records} records)" for each in fields[:_FIELDS_SHOWN])
        more = len(fields) - _FIELDS_SHOWN
        warnings.append(
            f"topic {topic} has fields that table.schema lacks, and records are taken without them: {named}"
            f"{f' and {more} more' if more > 0 else ''}. Add them to table.schema and restart; if nobody "
            "wants them, say so: input.unknown_fields: ignore"
        )
    return warnings


def blocked_readers(blocker: Mapping[str, Any] | None, lease_ms: int) -> list[str]:
    """The warning about an open transaction that is older than a lease: whoever began it does not move."""
    if blocker is None or blocker["age_ms"] < lease_ms:
        return []
    who = (
        f"{blocker['process']} at {blocker['address']}"
        if blocker["process"]
        else "no process has that slot now"
    )
    open_s = blocker["age_ms"] / 1000
    return [
        f"slot {blocker['slot']} of the {blocker['stage']} stage ({who}) holds all readers back: its "
        f"transaction is open for {open_s:.0f} s. Is it frozen? It is fenced once its lease has ended"
    ]
