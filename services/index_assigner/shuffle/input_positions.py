"""Where reading an input topic starts, and what to say when its retention ate what was not read yet."""

from __future__ import annotations

from index_assigner.errors import InputLostError
from stream_runtime.config.model import InputStart
from stream_runtime.kafka.ports import Admin, Isolation, OffsetOutOfRangeError, TopicPartition

__all__ = ["InputStart", "lost_input", "start_position"]


def start_position(admin: Admin, partition: TopicPartition, start: InputStart) -> int:
    """The first position of an input partition that never counted."""
    if start is InputStart.EARLIEST:
        return admin.start_offset(partition)
    return admin.end_offset(partition, Isolation.READ_COMMITTED)


def lost_input(error: OffsetOutOfRangeError) -> InputLostError:
    """Stops the service: jumping over a deleted range would lose records silently."""
    return InputLostError(
        f"{error}. Records of the input were deleted before they were read (by retention, or the topic was "
        "recreated). Raise retention.ms of the topic; to go on without them, start over with "
        "`tidemark table adopt --new-ledger`"
    )
