"""Splits a batch of records into parts that are decoded at a time, by the memory that they will take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidemark.index_assigner.shuffle.keyed_parts import chunks
from tidemark.record_formats.decoded_memory import TOGETHER_MAX, memory_max, parts_within
from tidemark.record_formats.decoder import Int64Array, RecordDecoder
from tidemark.stream_runtime.kafka.ports import Message


class DecodeParts:
    """Splits batches of one table. Values above ``record_bytes_max`` are never decoded, so they count as
    empty.
    """

    def __init__(self, decoder: RecordDecoder, record_bytes_max: int) -> None:
        self._decoder = decoder
        self._record_bytes_max = record_bytes_max

    def ranges(self, messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """Yields half-open ranges of positions, in order, each to be decoded at a time."""
        for first, after in chunks(messages):
            if after - first <= 1:
                yield first, after
                continue
            memory = self._memory(messages[first:after], TOGETHER_MAX)
            for start, end in parts_within(memory, TOGETHER_MAX):
                yield first + start, first + end

    def why_too_large(self, message: Message) -> str | None:
        """Why a record takes more memory once decoded than one record may; None when it does not.

        To be asked of records that `ranges` put into a part of their own: such a record has no room beside
        others.
        """
        most = memory_max(self._record_bytes_max)
        taken = int(self._memory([message], most)[0])
        if taken <= most:
            return None
        return (
            f"the value has {len(message.value or b'')} bytes and may take {taken} bytes of memory once it "
            f"is decoded, a record may take {most}: it holds very many small values"
        )

    def _memory(self, messages: Sequence[Message], most: int) -> Int64Array:
        values = [message.value or b"" for message in messages]
        small = [value if len(value) <= self._record_bytes_max else b"" for value in values]
        try:
            return self._decoder.memory(small, most)
        except Exception:
            # Parsers may raise errors of any class for bytes from outside. Each record then counts as
            # large, so it is decoded by itself, and the error leads to the record that caused it.
            if len(messages) == 1:
                raise
            return np.full(len(messages), TOGETHER_MAX, np.int64)
