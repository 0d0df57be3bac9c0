"""Why an input record cannot be taken. Each one goes to the dead-letter topic; the stream goes on."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class DeadLetterReason(StrEnum):
    """What is wrong with the record; the values are a contract with readers of the dead-letter topic."""

    NOT_JSON = "not-json"
    WRONG_SHAPE = "wrong-shape"
    """JSON, but no object; a change event without the row that its operation needs."""
    NOT_FRAMED = "not-framed"
    """No Confluent wire format, where the configuration says that values have it."""
    UNKNOWN_SCHEMA = "unknown-schema"
    """The schema registry has no schema of the record's id."""
    INCOMPATIBLE_SCHEMA = "incompatible-schema"
    """The record's schema cannot be read as the table's."""
    NOT_AVRO = "not-avro"
    """The bytes are no record of the schema that they name."""
    NOT_PROTOBUF = "not-protobuf"
    UNKNOWN_OPERATION = "unknown-operation"
    """A change event with an ``op`` that is none of c, u, d, r, t."""
    TRUNCATE = "truncate"
    """A change event that empties the whole table: it is not carried out."""
    UNAVAILABLE_VALUE = "unavailable-value"
    """A change event leaves out a value that the source did not log."""
    MISTYPED_FIELD = "mistyped-field"
    UNKNOWN_FIELD = "unknown-field"
    """A field that the schema lacks, with ``input.unknown_fields: error``."""
    MISSING_KEY = "missing-key"
    NULL_KEY = "null-key"
    KEY_TOO_LONG = "key-too-long"
    INDEXED_VALUE_TOO_LONG = "indexed-value-too-long"
    """The value of a column with a secondary index and the record key are too long for an entry of it."""
    NULL_VALUE_WITHOUT_KEY = "null-value-without-key"
    BAD_KEY = "bad-key"
    """The Kafka key of a null value, or a key field, cannot be a record key."""
    NULL_ORDERING = "null-ordering"
    BAD_PARTITION = "bad-partition"
    DELETE_WITHOUT_PARTITION = "delete-without-partition"
    """A delete that does not say from which partition, in a table where a key may have a row in each."""
    UNDECODABLE = "undecodable"
    """Decoding it raises an error that says nothing of the record: a defect, met by this record alone."""
    SKIPPED = "skipped"
    """A record batch, or a deleted range, that an operator moved past (`tidemark input skip`)."""
    RECORD_TOO_LARGE = "record-too-large"
    WRONG_LANE = "wrong-lane"
    """With ``input.partitioning: shard``: the record lies in another partition than its key's lane."""


class OtherReason(str):
    """A reason that this version does not have: another version's, or a header that a stranger wrote."""

    __slots__ = ()


Reason = DeadLetterReason | OtherReason


def reason_named(text: str) -> Reason:
    """The reason of that name, as a dead letter's header or an answer of the admin API has it."""
    try:
        return DeadLetterReason(text)
    except ValueError:
        return OtherReason(text)


class Refusal(NamedTuple):
    """One refused record: its position in the batch that was given, and why, in words that name the field."""

    position: int
    reason: DeadLetterReason
    detail: str
