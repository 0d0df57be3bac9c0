"""How many records of a batch are decoded at a time: as many as have room in memory together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidemark.index_assigner.shuffle.keyed_parts import chunks
from tidemark.record_formats.decoded_memory import TOGETHER_MAX, memory_max, parts_within
from tidemark.record_formats.decoder import Int64Array, RecordDecoder
from tidemark.stream_runtime.kafka.ports import Message


class DecodeParts:
    """For records of one table, of at most ``record_bytes_max``; larger ones are not decoded."""

    def __init__(self, decoder: RecordDecoder, record_bytes_max: int) -> None:
        self._decoder = decoder
        self._record_bytes_max = record_bytes_max

    def ranges(self, messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """Half-open ranges of positions that are decoded at a time, in order."""
        for first, after in chunks(messages):
            if after - first <= 1:
                yield first, after
                continue
            memory = self._memory(messages[first:after], TOGETHER_MAX)
            for start, end in parts_within(memory, TOGETHER_MAX):
                yield first + start, first + end

    def why_too_large(self, message: Message) -> str | None:
        """Of a record that is decoded by itself, if it takes more memory than one may; None: it does not.

        One that takes so much is by itself: it has no room beside others.
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
            # Bytes from outside lead parsers to errors of any class: each by itself, the record is found.
            if len(messages) == 1:
                raise
            return np.full(len(messages), TOGETHER_MAX, np.int64)
