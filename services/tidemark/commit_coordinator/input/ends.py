"""Asks Kafka where input lanes end, and whether there are records before that end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.lanes import parse_shuffle_lane
from tidemark.stream_runtime.kafka.ports import Admin, Isolation, TopicPartition


def holds_records(
    admin: Admin, empty: Callable[[], Iterable[EmptyRange]], lane: str, first: int, end: int
) -> bool:
    """Whether a committed record lies in [first, end) of an input lane; True while nobody knows.

    Markers and aborted records of transactional producers use offsets, too, and a lane's position does not
    move past them before the next record comes. The lane's owner reports such ranges (``empty``). The
    coordinator never fetches the input itself, since a record batch may unpack to more memory than there is.

    Deleted offsets count as records: if they were not read, they are lost, and no flush may call them
    committed. ``first`` 0: the lane has no counting transaction, and begins where its partition starts.

    Example: the position is 10, the end 12, and 10 and 11 are markers. The owner reports [10, 12) as empty:
    the lane is up to date.
    """
    partition = TopicPartition(*parse_shuffle_lane(lane))
    return _holds(empty, partition, first or admin.start_offset(partition), end)


def _holds(empty: Callable[[], Iterable[EmptyRange]], at: TopicPartition, first: int, end: int) -> bool:
    return first < end and not any(
        (known.topic, known.partition) == at and known.first <= first and end <= known.next
        for known in empty()
    )


def awaited_records(
    admin: Admin,
    empty: Callable[[], Iterable[EmptyRange]],
    is_unreadable: Callable[[], bool],
    starts: Callable[[], Mapping[str, int]],
) -> Callable[[str, int, int], bool]:
    """A function (lane, first, end) -> whether a flush has to wait for records in that range.

    ``starts``: where lanes without a counting transaction begin; records before are not awaited, and those
    behind it are, also where they were deleted before they were read.
    ``is_unreadable``: processes have left that cannot read their input, so records may be deleted unread.
    Then every range is awaited, because no flush may call them committed.
    """

    def awaited(lane: str, first: int, end: int) -> bool:
        if is_unreadable():
            return True
        begin = first or starts().get(lane)
        if begin is None:
            return holds_records(admin, empty, lane, 0, end)
        return _holds(empty, TopicPartition(*parse_shuffle_lane(lane)), begin, end)

    return awaited


def input_ends(admin: Admin, lanes: Iterable[str]) -> dict[str, int]:
    """Input lane -> its read_committed end, up to which a flush that is called now has to commit."""
    ends = {}
    for lane in lanes:
        topic, partition = parse_shuffle_lane(lane)
        ends[lane] = admin.end_offset(TopicPartition(topic, partition), Isolation.READ_COMMITTED)
    return ends
