"""Answers of `tidemark.admin.v1` as our own types, and what is asked as messages: the client's half of
`commit_coordinator.admin.messages`.
"""

from __future__ import annotations

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.ledger_client.dead_letters import DeadLetter, LetterFilter
from tidemark.ledger_client.served_by import Served


def served_of(message: pb.ServesResponse) -> Served:
    """Which table is served. A former version does not say where the table lies."""
    at = message.location
    location = TableLocation(at.path, at.file, at.identity) if message.HasField("location") else None
    return Served(message.path, message.served_by, location)


def letter_of(message: pb.DeadLetter) -> DeadLetter:
    """A letter without its content."""
    return DeadLetter(
        reason=message.reason,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        detail=message.detail,
        id=message.id,
        timestamp_ms=message.timestamp_ms,
        cut=tuple(message.cut),
        replays=message.replays,
        replayed=message.replayed,
    )


def filter_message(wanted: LetterFilter) -> pb.DeadLetterFilter:
    """Which letters are asked for."""
    return pb.DeadLetterFilter(
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        reason=wanted.reason,
        ids=sorted(wanted.ids or ()),
    )
