"""Decodes messages of Tidemark's own topics; errors name topic, partition and offset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from tidemark.epoch_protocol.batches import BatchHeader, decode_batch
from tidemark.epoch_protocol.errors import UnknownEntryError
from tidemark.stream_runtime.kafka.ports import Message

WAY_OUT: Final = "`tidemark table adopt --new-ledger` goes on from the table's last commit"


def header_of(message: Message) -> BatchHeader:
    """The header of a batch message. Raises UnknownEntryError, with topic, partition and offset, for a
    message that is no batch of ours.
    """
    with placed(message):
        return BatchHeader.decode(message.headers)


def rows_of(message: Message) -> pa.RecordBatch:
    """The rows of a batch message, zero-copy. Raises UnknownEntryError, with topic, partition and offset,
    when they cannot be read.
    """
    with placed(message):
        return decode_batch(message.value or b"")


@contextmanager
def placed(message: Message) -> Iterator[None]:
    """Adds topic, partition, offset and the way out to an UnknownEntryError that is raised inside."""
    try:
        yield
    except UnknownEntryError as error:
        raise UnknownEntryError(
            f"{message.topic}[{message.partition}] offset {message.offset}: {error}. Run the Tidemark that "
            f"wrote it; if none did, {WAY_OUT}"
        ) from error
