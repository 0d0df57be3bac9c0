"""Where the service actions stand, and which entry of the decisions moves one; the fold takes no other
(docs/lifecycles.md has the picture).

At most one action of each kind is open. Actions touch nothing else of the fold: no lane, no generation and no
epoch, and a rewind leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServiceKind,
    ServicePlanned,
    ServiceStep,
    ServiceVoided,
)


class OpenService(msgspec.Struct, frozen=True):
    """An action that is planned, and neither committed nor void."""

    planned: ServicePlanned
    decided: ServiceDecided | None = None


class ServiceStatus(Enum):
    """The status of an action in the decisions."""

    NONE = "none"
    PLANNED = "planned"
    DECIDED = "decided"
    COMMITTED = "committed"
    VOID = "void"


SERVICE_STEPS: Final[Mapping[tuple[ServiceStatus, type[ServiceStep]], ServiceStatus]] = {
    (ServiceStatus.NONE, ServicePlanned): ServiceStatus.PLANNED,
    (ServiceStatus.PLANNED, ServiceDecided): ServiceStatus.DECIDED,
    (ServiceStatus.PLANNED, ServiceVoided): ServiceStatus.VOID,
    (ServiceStatus.DECIDED, ServiceCommitted): ServiceStatus.COMMITTED,
    # The lock was lost, or what was decided does not hold any more, and nothing is completed.
    (ServiceStatus.DECIDED, ServiceVoided): ServiceStatus.VOID,
}


def open_service(services: Mapping[ServiceKind, OpenService], number: int) -> OpenService | None:
    """The open action with this number."""
    return next((action for action in services.values() if action.planned.service == number), None)


def decided_services(services: Mapping[ServiceKind, OpenService]) -> list[OpenService]:
    """The actions that are decided, in the order of their numbers."""
    decided = (action for action in services.values() if action.decided is not None)
    return sorted(decided, key=lambda action: action.planned.service)


def apply_service(
    services: dict[ServiceKind, OpenService], next_service: int, entry: ServiceStep
) -> int | None:
    """Applies the entry to ``services``; returns the number of the next action, or None when the entry is out
    of place and changes nothing.
    """
    if isinstance(entry, ServicePlanned):
        if entry.kind in services or entry.service != next_service:
            return None
        services[entry.kind] = OpenService(entry)
        return next_service + 1
    held = open_service(services, entry.service)
    if held is None or (_status(held), type(entry)) not in SERVICE_STEPS:
        return None
    if isinstance(entry, ServiceDecided):
        services[held.planned.kind] = OpenService(held.planned, entry)
        return next_service
    if isinstance(entry, ServiceVoided):
        standing = held.decided.data_completion if held.decided is not None else ""
        if entry.undecides != standing:
            return None
    del services[held.planned.kind]
    return next_service


def _status(held: OpenService) -> ServiceStatus:
    return ServiceStatus.PLANNED if held.decided is None else ServiceStatus.DECIDED
