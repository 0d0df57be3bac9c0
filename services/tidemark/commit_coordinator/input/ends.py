"""Where input lanes end, and whether what lies before the end are records: asked of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.lanes import parse_shuffle_lane
from tidemark.stream_runtime.kafka.ports import Admin, Isolation, TopicPartition


def holds_records(
    admin: Admin, empty: Callable[[], Iterable[EmptyRange]], lane: str, first: int, end: int
) -> bool:
    """Whether a committed record lies in [first, end) of an input lane; True while nobody knows.

    Markers and aborted records of transactional producers use offsets, too, and no position moves past them
    before the next record comes. The lane's owner has read there, and says so (``empty``); what lies in the
    input is never fetched here, since a record batch may unpack to more memory than there is. What was
    deleted counts as records: unread it is lost, and no flush may call it committed. ``first`` 0 is a lane
    that never counted: it begins where its partition starts.
    """
    partition = TopicPartition(*parse_shuffle_lane(lane))
    first = first or admin.start_offset(partition)
    return first < end and not any(
        (each.topic, each.partition) == partition and each.first <= first and end <= each.next
        for each in empty()
    )


def awaited_records(
    admin: Admin,
    empty: Callable[[], Iterable[EmptyRange]],
    is_unreadable: Callable[[], bool],
    starts: Callable[[], Mapping[str, int]],
) -> Callable[[str, int, int], bool]:
    """(lane, first, end) -> whether a flush waits for what lies there.

    A lane that never counted has nothing before its recorded start (``starts``). What nobody can read any
    more may have been deleted unread: a flush may not call that committed.
    """
    return lambda lane, first, end: (
        is_unreadable() or holds_records(admin, empty, lane, first or starts().get(lane, 0), end)
    )


def input_ends(admin: Admin, lanes: Iterable[str]) -> dict[str, int]:
    """Per input lane the read_committed end: what a flush called now has to cover."""
    ends = {}
    for lane in lanes:
        topic, partition = parse_shuffle_lane(lane)
        ends[lane] = admin.end_offset(TopicPartition(topic, partition), Isolation.READ_COMMITTED)
    return ends
