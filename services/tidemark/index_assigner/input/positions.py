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

# Written by the coordinator when it sees a lane first: input lane -> offset.
INPUT_STARTS_RECORD: Final = ".hoodie/.aux/tidemark/input-starts.json"
INPUT_EARLIEST_RECORD: Final = ".hoodie/.aux/tidemark/input-earliest.json"


def earliest(admin: Admin, lane: str) -> int:
    """The first offset that the topic's retention has left now."""
    return admin.start_offset(TopicPartition(*parse_shuffle_lane(lane)))


def start_of(start: InputStart, storage: Storage) -> StartOf:
    """The `StartOf` of the configured ``input.start``.

    `latest` means the partitions' ends, and `earliest` their starts, when the coordinator saw them first and
    recorded that, and not those of now. Example: an owner starts reading at the end, 100; ten records come;
    the owner dies before a transaction of it counts. The next owner would start at 110 and lose the ten.

    A lane without a record begins at its start of now with `earliest`: the coordinator could not ask for it
    yet, or is of a former version. With `latest` the function raises SetupError for such a lane.
    """

    known: dict[str, int] = {}

    def recorded(admin: Admin, lane: str) -> int:
        if lane not in known:
            known.update(recorded_starts(storage, start))
        if lane in known:
            return known[lane]
        if start is InputStart.EARLIEST:
            return earliest(admin, lane)
        raise SetupError(
            f"{INPUT_STARTS_RECORD} in the table's folder has no position for {lane}: with input.start: "
            "latest the coordinator records it when it starts: restart it with this configuration"
        )

    return recorded


def recorded_starts(storage: Storage, start: InputStart) -> dict[str, int]:
    """Offset by input lane, as recorded for this ``input.start``; empty before the coordinator recorded any.

    Raises SetupError when the record is damaged.
    """
    path = INPUT_EARLIEST_RECORD if start is InputStart.EARLIEST else INPUT_STARTS_RECORD
    try:
        return read_document(storage, path, dict[str, int])
    except FileMissingError:
        return {}
    except CorruptFileError as error:
        raise SetupError(f"{error}: the coordinator's start says what to do about it") from error
