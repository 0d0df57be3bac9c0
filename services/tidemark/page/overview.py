"""The main document of the page, made from `status` and the newest epochs.

These are pure functions that return plain JSON types. Times are milliseconds since the Unix epoch, sizes are
bytes, rates are records per second. The document's size is bounded, however large the table is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidemark.page.plain_values import cut
from tidemark.table_status.epochs import AttemptRecord, EpochRecord
from tidemark.table_status.services import EndedServiceAction, ServiceKindState
from tidemark.table_status.status import CoordinatorState, MemberState, Status, VerificationState
from tidemark.table_status.warnings import StatusWarning, WarningKind

EPOCHS_SHOWN: Final = 48
_ATTEMPTS_SHOWN: Final = 5
_WARNINGS_SHOWN: Final = 30
_MEMBERS_SHOWN: Final = 64
_REASONS_SHOWN: Final = 3
_LANES: Final = "lag_lane_"
TIERS: Final = ("uncommitted", "hot", "rocksdb", "run", "mdt")
_COMMIT_STEPS: Final = (("index", "commit_metadata"), ("data", "commit_data"), ("clean", "commit_clean_up"))
_LEVELS: Final = ("stop", "wait", "look")


@dataclass(frozen=True)
class Facts:
    """The facts of the configuration. `sharded`: the input is partitioned by lane, so there is no
    shuffle stage. `index_kind`: of the record index.
    """

    table: str
    config: str
    table_type: str
    topics: tuple[str, ...]
    record_key: tuple[str, ...]
    partition: tuple[str, ...]
    sharded: bool
    uncommitted_entries_max: int | None
    target_bytes: int
    index_kind: str = "global"


def overview(
    facts: Facts,
    status: Status,
    epochs: Sequence[EpochRecord],
    rates: Mapping[str, Any],
    now_ms: int,
) -> dict[str, Any]:
    """The document. `epochs` are the newest ones, newest first; `now_ms` is the time of the answer."""
    shown = [_epoch(record) for record in epochs[:EPOCHS_SHOWN]]
    return {
        "now_ms": now_ms,
        "table": {
            "name": facts.table,
            "path": status.path,
            "type": facts.table_type,
            "config": facts.config,
            "topics": list(facts.topics),
            "record_key": list(facts.record_key),
            "partition": list(facts.partition),
            "index_kind": facts.index_kind,
        },
        "state": _state(status),
        "flow": _flow(facts, status),
        "rates": dict(rates),
        "in_flight": _in_flight(status),
        "last_commit": _last_commit(status, shown),
        "records": msgspec.to_builtins(status.records.committed),
        "epochs": shown,
        "tiers": _tiers(facts, status),
        "dead_letters": status.records.dead_letters,
        "verification": _verification(status.verification),
        "services": _services(status),
        "table_services": _table_services(status),
        "warnings": warnings(status, facts.config),
    }


def _state(status: Status) -> dict[str, str]:
    """The state of the table in one word, and the reason for it. The words are starting, stopped, halted,
    paused, attention, empty and running.
    """
    coordinator, paused = status.coordinator, status.paused
    if coordinator.term < 0:
        return {"name": "starting", "text": "the coordinator is taking the table over"}
    if coordinator.stopped:
        return {"name": "stopped", "text": cut(coordinator.halted or "")}
    if coordinator.halted:
        return {"name": "halted", "text": cut(coordinator.halted)}
    if paused.paused:
        return {"name": "paused", "text": cut(paused.reason)}
    if coordinator.trouble or status.gave_up or status.stopped_lanes:
        return {"name": "attention", "text": "something needs a look: see the warnings"}
    if not status.last_commit.epoch:
        return {"name": "empty", "text": "nothing is committed yet"}
    return {"name": "running", "text": "epochs are being committed"}


def _flow(facts: Facts, status: Status) -> dict[str, Any]:
    lag, services, groups = status.lag, status.services, status.file_groups
    tagging = [
        value
        for member in services.assign
        for name, value in member.figures.items()
        if name.startswith(_LANES)
    ]
    return {
        "has_shuffle": not facts.sharded,
        "input_waiting": lag.input_offsets_not_shuffled if lag is not None else None,
        "keyed_waiting": round(sum(tagging)) if tagging else None,
        "tagged_waiting": status.records.uncommitted.input,
        "input_not_committed": lag.input_offsets_not_committed if lag is not None else None,
        "shufflers": len(services.shuffle),
        "assigners": len(services.assign),
        "writer": bool(status.writer.asked),
        "doing": status.coordinator.doing,
        "file_groups": groups.file_groups if groups is not None else None,
        "bytes": groups.bytes if groups is not None else None,
    }


def _in_flight(status: Status) -> dict[str, Any]:
    flight = status.in_flight
    names = ("epoch", "attempt", "instant", "age_ms", "transactions", "bytes")
    waiting = [cut(name) for name in flight.not_reported[:10]]
    return {**{name: getattr(flight, name) for name in names}, "waiting_for": waiting}


def _last_commit(status: Status, epochs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The newest committed epoch. An epoch without rows has no instant."""
    last = status.last_commit
    known = next((epoch for epoch in epochs if epoch["epoch"] == last.epoch), None)
    return {
        "epoch": last.epoch,
        "instant": last.instant,
        "committed_ms": known["committed_ms"] if known is not None else None,
    }


def _epoch(record: EpochRecord) -> dict[str, Any]:
    attempts = record.attempts
    counted = next((attempt for attempt in reversed(attempts) if attempt.committed_ms is not None), None)
    current = counted or (attempts[-1] if attempts else None)
    started_ms = current.planned_ms or None if current is not None else None
    return {
        "epoch": record.epoch,
        "instant": record.instant or (current.instant if current is not None else None),
        "planned_ms": started_ms,
        "committed_ms": counted.committed_ms if counted is not None else None,
        "attempts": len(attempts),
        "voided": [
            {"attempt": attempt.attempt, "reason": cut(attempt.voided)}
            for attempt in attempts[-_ATTEMPTS_SHOWN:]
            if attempt.voided is not None
        ],
        "steps": steps(current) if current is not None else [],
        "counts": msgspec.to_builtins(record.counts),
        "bytes": record.bytes,
        "transactions": record.transactions,
    }


def steps(attempt: AttemptRecord) -> list[list[Any]]:
    """The steps of an attempt in their order, as [step, milliseconds]: plan, write, decide, index (the commit
    of the metadata table), data, clean. Empty for an attempt that is not decided.

    The coordinator measures its own steps. `write` is the rest of the time from plan to decision: the Spark
    job, and the wait for its report.
    """
    timings, planned_ms, decided_ms = attempt.timings_ms, attempt.planned_ms, attempt.decided_ms
    if not planned_ms or decided_ms is None:
        return []

    def timed(prefix: str) -> float:
        took: float = sum(ms for name, ms in timings.items() if name.startswith(prefix))
        return round(took, 1)

    decide = timed("decide_")
    write = round(max(decided_ms - planned_ms - decide, 0.0), 1)
    commit = [[step, timed(name)] for step, name in _COMMIT_STEPS]
    return [["plan", timed("plan_")], ["write", write], ["decide", decide], *commit]


def _tiers(facts: Facts, status: Status) -> list[dict[str, Any]]:
    """For each tier the sums over all assigners: size and entries with their limits, and the number of keys
    that it answered since they started; of run files also what is being loaded and which were set aside.
    """
    members = [member.figures for member in status.services.assign]

    def total(name: str) -> float | None:
        values = [stats[name] for stats in members if name in stats]
        return sum(values) if values else None

    asked = sum(total(f"keys_{tier}") or 0 for tier in (*TIERS, "none"))
    return [
        {
            "tier": tier,
            "bytes": total(f"{tier}_bytes"),
            "bytes_max": total(f"{tier}_bytes_max"),
            "entries": total(f"{tier}_entries"),
            "entries_max": facts.uncommitted_entries_max if tier == "uncommitted" else None,
            "answered": total(f"keys_{tier}"),
            "share": (total(f"keys_{tier}") or 0) / asked if asked else None,
            "loading": (total("run_loading_entries") or 0) if tier == "run" else 0,
            "loading_of": (total("run_loading_entries_max") or 0) if tier == "run" else 0,
            "damaged": (total("runs_damaged") or 0) if tier == "run" else 0,
            "lacking": (total("run_entries_lacking") or 0) if tier == "run" else 0,
            "mapped": total(f"{tier}_mapped_bytes"),
            "mapped_max": total(f"{tier}_mapped_bytes_max"),
        }
        for tier in (*TIERS, "none")
    ]


def _verification(state: VerificationState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    last = state.last
    return {
        "every_commits": state.every_commits,
        "running": state.running,
        "verified_epoch": state.verified.epoch if state.verified is not None else None,
        "agrees": last.agrees if last is not None else None,
        "ended_ms": last.ended_ms if last is not None else None,
    }


def _services(status: Status) -> list[dict[str, Any]]:
    stages: tuple[tuple[str, list[MemberState]], ...] = (
        ("shuffle", status.services.shuffle),
        ("assign", status.services.assign),
    )
    shown: list[dict[str, Any]] = [
        {
            "stage": stage,
            "slot": member.slot,
            "process": cut(member.process),
            "address": member.address,
            "lanes": len(member.lanes),
        }
        for stage, members in stages
        for member in members[:_MEMBERS_SHOWN]
    ]
    writer = status.writer
    if writer.asked:
        process = cut(writer.process)
        shown.append({"stage": "write", "slot": None, "process": process, "address": "", "lanes": None})
    return shown


def _table_services(status: Status) -> dict[str, Any]:
    """Tidemark's own table services, and when another engine's were last seen on the table's timeline."""
    own, shown = status.table_services.own, status.table_services.table
    return {
        "enabled": own.enabled,
        "paused": own.paused,
        "reason": cut(own.reason),
        "run_by": status.table_services.run_by,
        "timeline_files": shown.timeline_files if shown is not None else None,
        "kinds": [_table_service(state) for state in own.kinds],
    }


def _table_service(state: ServiceKindState) -> dict[str, Any]:
    last, failures = state.last, state.failures
    return {
        "kind": state.kind,
        "due": cut(state.due),
        "not_due": cut(state.not_due),
        "held_back": [cut(why) for why in state.held_back[:_REASONS_SHOWN]],
        "open": msgspec.to_builtins(state.open),
        "last": _ended(last),
        "last_reason": cut(last.reason) if last is not None else "",
        "failed": cut(failures.reason) if failures is not None else None,
        "failed_in_a_row": failures.in_a_row if failures is not None else 0,
    }


def _ended(last: EndedServiceAction | None) -> dict[str, Any] | None:
    names = ("number", "outcome", "planned_ms", "ended_ms", "groups", "bytes")
    return None if last is None else {name: getattr(last, name) for name in names}


def warnings(status: Status, config: str) -> list[dict[str, str]]:
    """The warnings of `status`, most urgent first, each with what to do if its text does not say so."""
    shown = []
    for warning in status.warnings[:_WARNINGS_SHOWN]:
        level, todo = _advice(warning, status.coordinator, config)
        shown.append({"level": level, "text": cut(warning.text), "todo": todo})
    return sorted(shown, key=lambda entry: _LEVELS.index(entry["level"]))


def _advice(warning: StatusWarning, coordinator: CoordinatorState, config: str) -> tuple[str, str]:
    """How urgent a warning is, and what to do. Only its kind decides, never its text."""
    if warning.kind is WarningKind.HALTED:
        return "stop", _after_a_halt(coordinator, config)
    advice = {
        WarningKind.LANE_STOPPED: (
            "stop",
            "The other partitions continue, nothing is lost. See docs/runbook.md, TidemarkLaneStopped.",
        ),
        WarningKind.STORAGE_REFUSES: (
            "wait",
            "The coordinator tries again by itself. If the warning stays, look for the cause.",
        ),
        WarningKind.COMMITS_WAIT: (
            "wait",
            "Another writer holds the table's lock: commits continue once it is given back.",
        ),
        WarningKind.KAFKA_SILENT: (
            "wait",
            f"The rest of this page is current. `tidemark doctor -c {config}` checks whether Kafka answers.",
        ),
        WarningKind.KAFKA_REFUSES: (
            "wait",
            "It is tried again. If the warning stays, somebody has to set right what Kafka names.",
        ),
        WarningKind.SERVICE_FAILS: (
            "look",
            f"`tidemark services list -c {config}` says when. See docs/runbook.md, TidemarkServiceFails.",
        ),
        WarningKind.SERVICES_BEHIND: ("look", "See docs/runbook.md, TidemarkServicesLate."),
        WarningKind.SERVICE_HELD_BACK: ("look", "See docs/runbook.md, TidemarkServiceHeld."),
        WarningKind.DIFFERENCES: ("stop", f"`tidemark verify --full -c {config}` names every difference."),
    }
    return advice.get(warning.kind, ("look", ""))


def _after_a_halt(coordinator: CoordinatorState, config: str) -> str:
    if coordinator.stopped:
        return (
            "Nothing is committed any more, and nothing is lost. No retry helps: "
            "docs/failure-walkthrough.md says what each case needs."
        )
    retry = f"`tidemark epoch retry {coordinator.blocked_epoch} -c {config}`"
    return f"Tagging rests, nothing is lost. Remove the cause, then {retry}."
