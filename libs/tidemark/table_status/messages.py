"""Translates status and epochs into messages of `tidemark.admin.v1` and back, and into the JSON documents
that `--json` prints and the admin API carries in fields `json`.

A message's fields have the same names as those of the JSON document. They differ in two points:

- An offset range is the pair `[10, 20]` in the document, and `{"first": 10, "next": 20}` in the message,
  because protobuf has no pairs.
- A message has warnings twice: as texts (`warnings`) and with their kinds (`typed_warnings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.services import EndedServiceAction, OwnServices
from tidemark.table_status.status import Status
from tidemark.table_status.warnings import StatusWarning, WarningKind

_RANGES: Final = ("keyed_offsets", "source_offsets")


def status_message(status: Status) -> pb.Status:
    """The status as a message; nothing is left out."""
    document = status_document(status)
    if status.last_commit.detail is not None:
        document["last_commit"]["detail"] = _with_named_ranges(document["last_commit"]["detail"])
    document["typed_warnings"] = msgspec.to_builtins(status.warnings)
    return ParseDict(document, pb.Status())


def status_of(message: pb.Status) -> Status:
    """The inverse of `status_message`. Fields that an older coordinator does not fill get their defaults; its
    warnings, which have no kinds, become `WarningKind.OTHER`.
    """
    document = _document(message)
    untyped = [msgspec.to_builtins(StatusWarning(WarningKind.OTHER, text)) for text in message.warnings]
    document["warnings"] = document["typed_warnings"] or untyped
    if detail := document["last_commit"].get("detail"):
        document["last_commit"]["detail"] = _with_plain_ranges(detail)
    return msgspec.convert(document, Status, strict=False)


def epoch_message(epoch: EpochRecord) -> pb.Epoch:
    """The epoch as a message; nothing is left out."""
    return ParseDict(_with_named_ranges(epoch_document(epoch)), pb.Epoch())


def epoch_of(message: pb.Epoch) -> EpochRecord:
    """The inverse of `epoch_message`."""
    return msgspec.convert(_with_plain_ranges(_document(message)), EpochRecord, strict=False)


def services_message(services: OwnServices) -> pb.OwnServices:
    """The table services as a message; nothing is left out."""
    return ParseDict(services_document(services), pb.OwnServices())


def services_of(message: pb.OwnServices) -> OwnServices:
    """The inverse of `services_message`."""
    return msgspec.convert(_document(message), OwnServices, strict=False)


def ended_message(ended: EndedServiceAction) -> pb.EndedServiceAction:
    """An ended action as a message; nothing is left out."""
    return ParseDict(msgspec.to_builtins(ended), pb.EndedServiceAction())


def _document(message: Message) -> dict[str, Any]:
    """The message as plain types. Its 64-bit numbers are texts, as in protobuf's JSON; the callers convert
    with `strict=False`, which accepts them as numbers.
    """
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _with_named_ranges(epoch: Mapping[str, Any]) -> dict[str, Any]:
    named = {
        name: {lane: {"first": first, "next": following} for lane, (first, following) in epoch[name].items()}
        for name in _RANGES
    }
    return {**epoch, **named}


def _with_plain_ranges(epoch: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: {lane: (int(pair["first"]), int(pair["next"])) for lane, pair in epoch[name].items()}
        for name in _RANGES
    }
    # The message of an attempt without an instant lacks the field, which `AttemptRecord` requires.
    attempts = [{"instant": None, **attempt} for attempt in epoch["attempts"]]
    return {**epoch, **plain, "attempts": attempts}


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
