"""Why an input record cannot be taken. Each one goes to the dead-letter topic; the stream goes on."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """What is wrong with the record; the values are a contract with readers of the dead-letter topic."""

    NOT_JSON = "not-json"
    WRONG_SHAPE = "wrong-shape"
    """JSON, but no object."""
    MISTYPED_FIELD = "mistyped-field"
    UNKNOWN_FIELD = "unknown-field"
    """A field that the schema lacks, with ``input.unknown_fields: error``."""
    MISSING_KEY = "missing-key"
    NULL_KEY = "null-key"
    KEY_TOO_LONG = "key-too-long"
    NULL_VALUE_WITHOUT_KEY = "null-value-without-key"
    BAD_KEY = "bad-key"
    """The Kafka key of a null value, or a key field, cannot be a record key."""
    NULL_ORDERING = "null-ordering"
    BAD_PARTITION = "bad-partition"
    RECORD_TOO_LARGE = "record-too-large"
    WRONG_LANE = "wrong-lane"
    """With ``input.partitioning: shard``: the record lies in another partition than its key's lane."""


class Refusal(NamedTuple):
    """One refused record: its position in the batch that was given, and why, in words that name the field."""

    position: int
    reason: Reason
    detail: str
