"""What Kafka says when a round waits in vain: readers of committed messages stop in front of an open
transaction, so who holds one open is told for each partition that they cannot read to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import KafkaException

from tests.chaos.end_checks import topic_ends
from tests.chaos.transactions import list_transactions, open_producers


def kafka_now(brokers: str) -> str:
    """Ends of the table's topics, all transactions, and who has an open one where; "host:port,host:port".

    Of a broker that does not answer it says so.
    """
    try:
        ends = topic_ends(brokers)
    except KafkaException as error:
        return f"Kafka does not tell the ends of topics: {error}"
    lines = [f"{lane}: {stable} of {end} can be read" for lane, (stable, end) in ends.items() if end]
    for broker in brokers.split(","):
        try:
            lines += _told_by(broker, [lane for lane, (stable, end) in ends.items() if stable < end])
        except OSError as error:
            lines.append(f"{broker} does not tell its transactions: {error}")
    return "\n".join(lines)


def _told_by(broker: str, hidden: list[str]) -> Iterator[str]:
    """`hidden`: partitions that cannot be read to their ends, as topic:number."""
    for each in list_transactions(broker):
        yield f"{each.identity}: {each.state}, producer {each.producer}"
    split = [lane.rpartition(":") for lane in hidden]
    for one in open_producers(broker, [(topic, int(number)) for topic, _, number in split]):
        yield (
            f"{one.lane}: open since offset {one.first} by producer {one.producer}, epoch {one.epoch}, "
            f"last message at {one.last_ms} ms"
        )
