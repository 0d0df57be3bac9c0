"""What services and Kafka are doing when a round waits in vain, perhaps on a machine whose files nobody sees.

Readers of committed messages stop in front of an open transaction, so who holds one open is told for each
partition that they cannot read to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import KafkaException

from tests.chaos.cluster import Cluster
from tests.chaos.end_checks import topic_ends
from tests.chaos.transactions import list_transactions, open_producers


def told_now(cluster: Cluster, epoch: int) -> str:
    """Lag, `epoch` (the newest that is committed), what each service and Kafka are doing. Ends the services.

    What it cannot learn it says: it is asked for beside a finding, which is not to be lost.
    """
    try:
        return _told_now(cluster, epoch)
    except Exception as error:
        return f"what services and Kafka are doing is not known: {type(error).__name__}: {error}"


def _told_now(cluster: Cluster, epoch: int) -> str:
    seats = (*cluster.seats.values(), *cluster.replaced)
    status = cluster.status() if any(seat.pid() for seat in seats) else None
    lag = None if status is None else status["lag"]
    said = [seat.now() for seat in seats]
    kafka = kafka_now(cluster.brokers.bootstrap) if cluster.brokers.pids else "Kafka does not run"
    stacks = [seat.stacks() for seat in seats]
    return "\n".join([f"lag {lag}; epoch {epoch}", *said, kafka, *stacks])


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
