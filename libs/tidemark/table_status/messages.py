"""Status and epochs as messages of `tidemark.admin.v1`, and back. Fields have the documents' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.table_status.documents import epoch_document, status_document
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.status import Status
from tidemark.table_status.warnings import StatusWarning, WarningKind

_RANGES: Final = ("keyed_offsets", "source_offsets")


def status_message(status: Status) -> pb.Status:
    """All of it."""
    document = status_document(status)
    if status.last_commit.detail is not None:
        document["last_commit"]["detail"] = _with_named_ranges(document["last_commit"]["detail"])
    document["typed_warnings"] = msgspec.to_builtins(status.warnings)
    return ParseDict(document, pb.Status())


def status_of(message: pb.Status) -> Status:
    """The inverse. What a former version of the coordinator does not say has its default."""
    document = _document(message)
    others = [msgspec.to_builtins(StatusWarning(WarningKind.OTHER, text)) for text in message.warnings]
    document["warnings"] = document["typed_warnings"] or others
    if detail := document["last_commit"].get("detail"):
        document["last_commit"]["detail"] = _with_plain_ranges(detail)
    return msgspec.convert(document, Status, strict=False)


def epoch_message(epoch: EpochRecord) -> pb.Epoch:
    """All of it."""
    return ParseDict(_with_named_ranges(epoch_document(epoch)), pb.Epoch())


def epoch_of(message: pb.Epoch) -> EpochRecord:
    """The inverse."""
    return msgspec.convert(_with_plain_ranges(_document(message)), EpochRecord, strict=False)


def _document(message: Message) -> dict[str, Any]:
    """64-bit numbers are text in it, as protobuf's JSON has them."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _with_named_ranges(epoch: Mapping[str, Any]) -> dict[str, Any]:
    named = {
        name: {lane: {"first": first, "next": following} for lane, (first, following) in epoch[name].items()}
        for name in _RANGES
    }
    return {**epoch, **named}


def _with_plain_ranges(epoch: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: {lane: (int(each["first"]), int(each["next"])) for lane, each in epoch[name].items()}
        for name in _RANGES
    }
    attempts = [{"instant": None, **each} for each in epoch["attempts"]]
    return {**epoch, **plain, "attempts": attempts}
