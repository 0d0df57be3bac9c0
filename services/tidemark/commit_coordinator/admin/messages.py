"""Converts the coordinator's documents to messages of `tidemark.admin.v1`, and requests to our own types.

Fields have the names of the documents' keys. A key without a field is in the JSON document alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.verification.verdict import VerificationResult
from tidemark.ledger_client.dead_letters import DeadLetter, LetterFilter, original_headers
from tidemark.ledger_client.table_identity import Served
from tidemark.record_formats.refusals import reason_named
from tidemark.stream_runtime.kafka.ports import Message


def served_message(served: Served) -> pb.ServesResponse:
    """The served table: path, owner, and place."""
    at = served.location
    location = pb.TableLocation(path=at.path, file=at.file, identity=at.identity) if at is not None else None
    return pb.ServesResponse(path=served.path, served_by=served.owner, location=location)


def table_message(document: Mapping[str, Any]) -> pb.Table:
    """The message of a `tidemark table describe` document."""
    return ParseDict(dict(document), pb.Table(), ignore_unknown_fields=True)


def letter_message(letter: DeadLetter) -> pb.DeadLetter:
    """A letter without its record; `console.admin_client` converts it back."""
    return pb.DeadLetter(**letter.document())


def filter_of(message: pb.DeadLetterFilter) -> LetterFilter:
    """The filter of a request, whose ids the caller has checked."""
    return LetterFilter(
        topic=message.topic if message.HasField("topic") else None,
        partition=message.partition if message.HasField("partition") else None,
        offset=message.offset if message.HasField("offset") else None,
        reason=reason_named(message.reason) if message.HasField("reason") else None,
        ids=frozenset(message.ids) or None,
        since_ms=message.since_ms if message.HasField("since_ms") else None,
    )


def whole_letter(message: Message, bytes_max: int) -> pb.ShowDeadLetterResponse:
    """A letter with its record: key, value and header values are cut at `bytes_max` bytes each; 0: never."""
    limit = bytes_max or None
    headers = original_headers(message)
    parts = [message.key, message.value, *(value for _, value in headers)]
    return pb.ShowDeadLetterResponse(
        letter=letter_message(DeadLetter.of(message)),
        key=_cut(message.key, limit),
        value=_cut(message.value, limit),
        headers=[pb.RecordHeader(name=name, value=_cut(value, limit)) for name, value in headers],
        is_cut=limit is not None and any(len(part or b"") > limit for part in parts),
    )


def verification_message(verdict: VerificationResult) -> pb.Verification:
    """The message of a verification's result."""
    answer = verdict.answer
    return pb.Verification(
        agrees=verdict.agrees,
        error=answer.get("error", ""),
        as_of=answer.get("as_of") or "",
        since=answer.get("since") or "",
        rows=answer.get("rows", 0),
        index_entries=answer.get("index_entries", 0),
        differences=[
            pb.Difference(kind=kind, count=found["count"], examples=found["examples"])
            for kind, found in answer.get("differences", {}).items()
        ],
        seconds=verdict.seconds,
        ended_ms=verdict.ended_ms,
        json=json.dumps(answer),
    )


def _cut(content: bytes | None, limit: int | None) -> bytes | None:
    return None if content is None else content[:limit]
