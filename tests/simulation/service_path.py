"""The commit path with table services: handlers of any kinds, and a worker for their tasks. A new kind brings
its handler, and a function that does its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.simulation.commit_path import CommitPath
from tests.simulation.scripted_tagger import SCHEMA
from tidemark.commit_coordinator.calls.service_handoff import ServiceReport
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.table_services.handler import ServiceHandler
from tidemark.commit_coordinator.table_services.runner import ServiceRules
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServiceKind,
    ServicePlanned,
    ServiceStep,
    ServiceVoided,
)
from tidemark.hudi_format.errors import FencedOutError, HudiFormatError, in_words
from tidemark.hudi_format.publication.locate import service_files_of
from tidemark.hudi_format.publication.port import ServiceFiles
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType

SKEW_MS = 1_000
Work = Callable[[bytes, ServiceFiles], tuple[bytes, tuple[Ticket, ...]]]
Handlers = Callable[[Context], Sequence[ServiceHandler]]


class ServicePath(CommitPath):
    """One table with services. ``work``: by kind, how the tasks are done."""

    def __init__(
        self,
        folder: Path,
        handlers: Handlers,
        work: Mapping[ServiceKind, Work],
        *,
        seed: int = 7,
        table_type: TableType = TableType.MERGE_ON_READ,
        schema: TableSchema = SCHEMA,
        partition_shards: int = 0,
    ) -> None:
        super().__init__(
            folder, table_type, ordered=True, seed=seed, schema=schema, partition_shards=partition_shards
        )
        self.handlers, self._work = handlers, work
        self.service_rules = ServiceRules(enabled=True, step_ms=50, clock_skew_ms=SKEW_MS)
        self.works = True

    def work_on_services(self) -> int:
        """Does the tasks of what is handed out; returns of how many actions."""
        done = 0
        while self.works and (offered := self.handoff.wait_for_work("worker", 0.0)) is not None:
            planned = offered.planned
            plan = load_document(self.storage, planned.plan_path, planned.plan_sha256)
            files = service_files_of(self.storage, offered.token)
            try:
                outcomes, tickets = self._work[planned.kind](plan, files)
            except FencedOutError:
                continue
            except (OSError, HudiFormatError) as error:
                self.handoff.fail(planned.service, "worker", in_words(error))
                continue
            assert self.handoff.report(planned.service, "worker", ServiceReport(outcomes, tickets))
            done += 1
        return done

    def step(self) -> None:
        self.step_coordinator()
        self.write_open_attempt()
        self.work_on_services()
        self.clock.advance(0.05)

    def is_idle(self) -> bool:
        """No epoch is to be committed, and no action is open or due."""
        if not super().is_idle() or self.context is None or self.coordinator is None:
            return False
        return not self.context.fold().state.services and not self.coordinator.seen.services.due

    def run_until_idle(self, steps_max: int = 400) -> None:
        super().run_until_idle(steps_max)

    def steps_of_services(self) -> list[ServiceStep]:
        """The entries about services that count, in order."""
        found = self.fold_reader().catch_up()
        return [
            each.entry
            for each in found
            if isinstance(each.entry, ServiceStep) and each.verdict is Verdict.APPLIED
        ]

    def ended(self) -> dict[int, ServiceCommitted | ServiceVoided]:
        """How each action ended, by number."""
        ends = (
            each for each in self.steps_of_services() if isinstance(each, ServiceCommitted | ServiceVoided)
        )
        return {each.service: each for each in ends}

    def planned_services(self) -> dict[int, ServicePlanned]:
        """What was planned, by number."""
        return {each.service: each for each in self.steps_of_services() if isinstance(each, ServicePlanned)}

    def decided_services(self) -> dict[int, list[ServiceDecided]]:
        """What was decided, by number."""
        found: dict[int, list[ServiceDecided]] = {}
        for each in self.steps_of_services():
            if isinstance(each, ServiceDecided):
                found.setdefault(each.service, []).append(each)
        return found

    def names_with(self, instant: str) -> list[str]:
        """Paths of all files of the table that an instant's time is in, staging aside."""
        return [path for path in self.files() if instant in path and "/tidemark/" not in path]
