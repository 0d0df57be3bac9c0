"""Where reading an input lane starts, as long as no transaction of the lane has counted (`input.start`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.config.model import InputStart
from tidemark.epoch_protocol.lanes import parse_shuffle_lane
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_document
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ports import Admin, TopicPartition

StartOf = Callable[[Admin, str], int]
"""(admin, input lane ``topic:partition``) -> the offset of its first record to read."""

# Written by the coordinator when the ledger began: input lane -> offset.
INPUT_STARTS_RECORD: Final = ".hoodie/.aux/tidemark/input-starts.json"


def earliest(admin: Admin, lane: str) -> int:
    """`input.start: earliest`: the first offset that the topic's retention has left."""
    return admin.start_offset(TopicPartition(*parse_shuffle_lane(lane)))


def start_of(start: InputStart, storage: Storage) -> StartOf:
    """The `StartOf` of the configured ``input.start``.

    `latest` means the partitions' ends when the ledger began, as the coordinator recorded them, and not their
    ends now. Example: an owner starts reading at the end, 100; ten records come; the owner dies before a
    transaction of it counts. The next owner would start at 110 and lose the ten.

    The function raises SetupError for a lane whose position is not recorded.
    """
    if start is InputStart.EARLIEST:
        return earliest

    def recorded(_: Admin, lane: str) -> int:
        starts = recorded_starts(storage)
        if lane not in starts:
            raise SetupError(
                f"{INPUT_STARTS_RECORD} in the table's folder has no position for {lane}: with input.start: "
                "latest the coordinator records it when it starts: restart it with this configuration"
            )
        return starts[lane]

    return recorded


def recorded_starts(storage: Storage) -> dict[str, int]:
    """Offset by input lane, as recorded; empty before the coordinator recorded any.

    Raises SetupError when the record is damaged.
    """
    try:
        return read_document(storage, INPUT_STARTS_RECORD, dict[str, int])
    except FileMissingError:
        return {}
    except CorruptFileError as error:
        raise SetupError(f"{error}: the coordinator's start says what to do about it") from error
