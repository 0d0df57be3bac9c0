"""Status and epochs as the JSON documents that `--json` prints and the admin API carries in fields `json`."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.services import OwnServices
from tidemark.table_status.status import Status


def status_document(status: Status) -> dict[str, Any]:
    """The status as plain JSON types. A warning is only its text here; its kind is in the message (field
    `typed_warnings`).
    """
    document: dict[str, Any] = msgspec.to_builtins(status)
    document["warnings"] = [warning.text for warning in status.warnings]
    if (services := status.table_services).table is None:
        own = services_document(services.own)
        document["table_services"] = {"warnings": list(services.warnings), "own": own}
    return document


def services_document(services: OwnServices) -> dict[str, Any]:
    """Tidemark's own table services as plain JSON types."""
    document: dict[str, Any] = msgspec.to_builtins(services)
    return document


def epoch_document(epoch: EpochRecord) -> dict[str, Any]:
    """The epoch as plain JSON types."""
    document: dict[str, Any] = msgspec.to_builtins(epoch)
    return document
