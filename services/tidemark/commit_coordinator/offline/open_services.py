"""Ends service actions that a coordinator left open, for commands that work in its place.

With the decisions (`recover`) an action ends as a coordinator would end it. Without them (a new ledger) the
documents of decided actions, which lie with the table, tell which pending instants are Tidemark's own: these
are taken back, or completed if they can only go on. So nothing of a former ledger stays pending for good.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.table_services import steps
from tidemark.commit_coordinator.table_services.handler import ServiceHandler
from tidemark.commit_coordinator.table_services.kinds import handlers_of
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.hudi_format.errors import UnsupportedTableError

_REASON: Final = "tidemark recover"
_SLICE_MS: Final = 1_000
_log = logging.getLogger("tidemark.coordinator")


def end_open_services(context: Context, config: TableConfigFile) -> list[ServicePlanned]:
    """Commits and sweeps decided actions, voids the others; returns them. Raises LockHeldError."""
    handlers = _handlers(context, config)
    open_services = sorted(context.fold().state.services.values(), key=lambda held: held.planned.service)
    for held in open_services:
        context.lock.acquire(context.lock_wait_ms, ends_epoch=True)
        if held.decided is None:
            steps.void(context, held.planned, _REASON)
        else:
            _end_decided(context, _handler(handlers, held.planned.kind), held)
    return [held.planned for held in open_services]


def end_services_of_former_ledger(context: Context, config: TableConfigFile) -> list[str]:
    """Ends what decided actions of a former ledger left on the timelines; returns the instants. Hold the
    table's lock.
    """
    handlers, ended = _handlers(context, config), []
    context.instants.observe(load_timelines(context.storage).times())
    for left in steps.left_actions(context):
        handler = _handler(handlers, left.planned.kind)
        if steps.end_left_action(context, handler, left):
            ended.append(left.planned.instant)
    return ended


def _end_decided(context: Context, handler: ServiceHandler, held: OpenService) -> None:
    planned, decided = held.planned, held.decided
    assert decided is not None
    try:
        completed = steps.commit(context, handler, planned, decided)
    except ActionLostError as error:
        _log.warning("service action %d is taken back: %s", planned.service, error)
        if steps.take_back(context, handler, planned, decided, str(error)):
            return
        completed = steps.commit(context, handler, planned, decided)
    while not steps.sweep(context, handler, planned, decided, completed, _SLICE_MS):
        pass


def _handlers(context: Context, config: TableConfigFile) -> Mapping[ServiceKind, ServiceHandler]:
    placement = Placement(1, context.ids)
    made = handlers_of(config.table_services, placement, context.table.action)
    return {handler.kind: handler for handler in made}


def _handler(handlers: Mapping[ServiceKind, ServiceHandler], kind: ServiceKind) -> ServiceHandler:
    handler = handlers.get(kind)
    if handler is None:
        raise UnsupportedTableError(
            f"a service action ({kind}) is decided, and this version cannot end that kind",
            "Use the version of Tidemark that decided it",
        )
    return handler
