"""Confluent's wire format: a zero byte, the schema's id in four bytes (big-endian), the content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tidemark.record_formats.decoder import Int64Array

HEADER_BYTES: Final = 5
NOT_FRAMED: Final = -1
_PADDING: Final = b"\xff" * HEADER_BYTES


def schema_ids(values: Sequence[bytes]) -> Int64Array:
    """The schema id of each value; `NOT_FRAMED` where it does not begin with a zero byte and an id."""
    # The five first bytes of all values become one array, whose columns are compared and converted at once:
    # the values 00 00 00 00 07 … and 7b 22 … give two rows; the first has byte 0 and the id 7, the second
    # is not framed.
    heads = b"".join([(value[:HEADER_BYTES] + _PADDING)[:HEADER_BYTES] for value in values])
    rows = np.frombuffer(heads, np.uint8).reshape(-1, HEADER_BYTES)
    ids = np.ascontiguousarray(rows[:, 1:]).view(">u4").reshape(-1).astype(np.int64)
    long_enough = np.fromiter((len(value) >= HEADER_BYTES for value in values), np.bool_, len(values))
    return np.where((rows[:, 0] == 0) & long_enough, ids, NOT_FRAMED)


def why_not_framed(value: bytes) -> str:
    """The detail of the refusal of a value without the header."""
    return (
        f"the value starts with {value[:HEADER_BYTES].hex() or 'nothing'}, not with Confluent's wire format "
        "(00 and a schema id): see input.framing"
    )
