"""A table that lives with all table services, and knows which service is at which step. A test says there
what happens: the coordinator dies, the action is lost, or the storage refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from tests.simulation.clocked_storage import ClockedStorage
from tests.simulation.lived_table import LivedTable
from tests.simulation.service_path import Work
from tidemark.commit_coordinator.coordinator import Coordinator
from tidemark.commit_coordinator.domain.service_actions import (
    CompleteService,
    PlanService,
    SeenKind,
    ServiceAction,
    SweepService,
)
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.config.table_services_model import (
    ArchiveConfig,
    CleanConfig,
    DataCompactionConfig,
    IndexCompactionConfig,
    RollbackConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import create_inflight, create_requested, instant_path
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.publication.port import ServiceFiles
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.timeline import Action
from tidemark.stream_runtime.failpoint import FailpointHitError

SOON: Final = TableServicesConfig(
    enabled=True,
    compact_data=DataCompactionConfig(log_files=3, min_interval_ms=1_000),
    compact_index=IndexCompactionConfig(log_files=4, log_ratio=100.0, min_interval_ms=1_000),
    clean=CleanConfig(retain_ms=3_000, interval_ms=2_000),
    index_retain_ms=3_000,
    archive=ArchiveConfig(min=5, max=6, batch=1),
    rollback=RollbackConfig(interval_ms=2_000),
)
"""Every kind has something to do every few seconds."""
_DEAD_MS: Final = 600_000


class Step(StrEnum):
    """Where in an action a service is."""

    PLAN = "plan"
    TASK = "task"
    DECIDE = "decide"
    COMMIT = "commit"
    SWEEP = "sweep"
    VOID = "void"


@dataclass(frozen=True)
class At:
    """A kind at a step."""

    kind: ServiceKind
    step: Step


def nothing(*_: object) -> None:
    """Lets all go on."""


class WatchedLife(LivedTable):
    """`on_hit` is called at each failpoint of a service, and may raise. `on_call` is called before each call
    to the storage that the coordinator makes for a service, or a worker: (where, name of the call, its first
    path), and may raise OSError. `at` is where the service is, None in an epoch.
    """

    def __init__(self, folder: Path, groups: int = 3, seed: int = 1) -> None:
        self.at: At | None = None
        self.on_hit: Callable[[At, str], None] = nothing
        self.on_call: Callable[[At, str, str], None] = nothing
        super().__init__(folder, SOON, groups=groups, keys=10 * groups, seed=seed)
        self.lies_at(self.storage)
        self._work = {kind: self._watched(kind) for kind in self._work}

    def lies_at(self, storage: ClockedStorage) -> None:
        """The table's folder is this one from now on. ``plain``: as nobody watches it."""
        self.plain = storage
        self.storage = cast(ClockedStorage, _Asking(storage, self))

    def pass_second(self) -> None:
        """A second without new input."""
        for _ in range(10):
            self.step_coordinator()
            self.write_open_attempt()
            self.work_on_services()

    def _watched(self, kind: ServiceKind) -> Work:
        work = self._work[kind]

        def done(plan: bytes, files: ServiceFiles) -> tuple[bytes, tuple[Ticket, ...]]:
            self.at = At(kind, Step.TASK)
            try:
                return work(plan, files)
            finally:
                self.at = None

        return done

    def start_coordinator(self) -> Coordinator:
        found, context = super().start_coordinator(), self.context
        assert context is not None
        carry_out, hit = found.services.carry_out, context.hit

        def watched(action: ServiceAction, observed: Any) -> None:
            self.at = _at(action)
            try:
                carry_out(action, observed)
            finally:
                self.at = None

        def hit_watched(name: CoordinatorFailpoint) -> None:
            if self.at is not None:
                if name == CoordinatorFailpoint.AFTER_SERVICE_DECIDED:
                    self.at = At(self.at.kind, Step.COMMIT)
                self.on_hit(self.at, name)
            hit(name)

        found.services.carry_out = watched  # type: ignore[method-assign]
        object.__setattr__(context, "hit", hit_watched)
        return found

    def step_coordinator(self) -> None:
        """One round; a coordinator that dies in it has a successor in the next one."""
        try:
            super().step_coordinator()
        except FailpointHitError:
            self.crash()
            self.clock.advance(1.0)

    def seen_kinds(self) -> list[SeenKind]:
        """What this coordinator has seen of the kinds."""
        assert self.coordinator is not None
        return list(self.coordinator.seen.services.kinds.values())

    def leave_dead_write(self) -> str:
        """Another engine begins a write and dies; returns the instant."""
        began_ms = self.clock.now_ms() - _DEAD_MS
        storage, instant = Unfenced(self.plain), instant_from_ms(self.clock.now_ms())
        requested = create_requested(storage, instant, Action.DELTA_COMMIT)
        create_inflight(storage, requested, b"")
        path = Path(self.plain.base_uri) / instant_path(requested)
        os.utime(path, (began_ms / 1_000, began_ms / 1_000))
        return instant


def _at(action: ServiceAction) -> At:
    if isinstance(action, PlanService):
        return At(action.kind, Step.PLAN)
    kind, name = action.planned.kind, type(action).__name__
    if isinstance(action, CompleteService | SweepService):
        return At(kind, Step.COMMIT if isinstance(action, CompleteService) else Step.SWEEP)
    return At(kind, Step.VOID if name == "VoidService" else Step.DECIDE)


class _Asking:
    """The storage; asks the life before each call."""

    def __init__(self, inner: ClockedStorage, life: WatchedLife) -> None:
        self._inner, self._life = inner, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def asked(*args: Any, **kwargs: Any) -> Any:
            life = self._life
            if life.at is not None:
                life.on_call(life.at, name, args[0] if args else "")
                if name in ("link", "rename", "rename_over", "publish"):
                    life.on_call(life.at, name, args[1])
            return found(*args, **kwargs)

        return asked
