"""Where input lanes end, and whether what lies before the end are records: asked of Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from epoch_protocol.lanes import parse_shuffle_lane
from stream_runtime.kafka.ports import Admin, Isolation, KafkaClient, TopicPartition, UnreadableBatchError

_LOOKS_MAX: Final = 20
_LOOK_S: Final = 0.05


def holds_records(client: KafkaClient, admin: Admin, lane: str, first: int, end: int) -> bool:
    """Whether a committed record lies in [first, end) of an input lane; True when it cannot be told in time.

    Markers and aborted records of transactional producers use offsets, too, and no position moves past them
    before the next record comes; of what retention deleted there is nothing to wait for either.
    """
    partition = TopicPartition(*parse_shuffle_lane(lane))
    first = max(first, admin.start_offset(partition))
    if first >= end:
        return False
    reader = client.partition_reader(Isolation.READ_COMMITTED)
    try:
        reader.assign({partition: first})
        for _ in range(_LOOKS_MAX):
            if reader.poll(1, _LOOK_S):
                return True
            if reader.position(partition) >= end:
                return False
        return True
    except UnreadableBatchError:
        # Whatever lies there, it is not read yet.
        return True
    finally:
        reader.close()


def input_ends(admin: Admin, lanes: Iterable[str]) -> dict[str, int]:
    """Per input lane the read_committed end: what a flush called now has to cover."""
    ends = {}
    for lane in lanes:
        topic, partition = parse_shuffle_lane(lane)
        ends[lane] = admin.end_offset(TopicPartition(topic, partition), Isolation.READ_COMMITTED)
    return ends
