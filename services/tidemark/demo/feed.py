"""`python -m tidemark.demo.feed -c F`: sends the demo's flights to a table's input topic, at a given rate.

It is the feeder of the compose set-up; `tidemark demo` has its own, which waits for commits. Equal months
give the same stream. It is sent in batches, each acknowledged before the next, and after each the position is
written to `state.path/feed.json`. A feeder that was killed therefore continues with the batch that it was
sending.

Records of that batch may be in the topic twice. That changes no row, since repetitions are part of the stream
anyway, but broken records among them become two dead letters each.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidemark.config import load_config
from tidemark.config.run_file import resolve_addresses
from tidemark.console.arguments import whole_number
from tidemark.console.output import printable
from tidemark.demo.flights import EventStream
from tidemark.demo.source import MONTHS_MAX, DemoSourceError
from tidemark.errors import TidemarkError
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import Isolation, KafkaClient, TopicPartition
from tidemark.stream_runtime.logging import configure_logging

BATCH_RECORDS: Final = 500
RATE_DEFAULT: Final = 2_000
RATE_MAX: Final = 1_000_000
POSITION_FILE: Final = "feed.json"
_WAIT_S: Final = 1.0
_TOPIC_TIMEOUT_S: Final = 120.0
_SAY_EVERY_S: Final = 5.0
_log: Final = logging.getLogger("tidemark.feed")


class FeedError(RuntimeError):
    """The stream cannot be sent; the message says what to change."""


class Position:
    """The number of acknowledged records of a stream, in a file that is replaced in one step."""

    def __init__(self, file: Path, topic: str, months: int) -> None:
        self._file = file
        self._stream = {"topic": topic, "months": months}

    def read(self, in_topic: int) -> int:
        """The recorded number. 0 when there is none, when it is that of another stream, or when the topic was
        emptied or made anew since: then it has fewer records (`in_topic`) than were recorded.
        """
        try:
            recorded = json.loads(self._file.read_text())
            sent = int(recorded.pop("sent"))
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FeedError(f"{self._file} holds no position ({error}): delete it to start anew") from None
        return sent if recorded == self._stream and 0 <= sent <= in_topic else 0

    def write(self, sent: int) -> None:
        """Records the number. The file is not synced: after a crash of the machine it may be older, and some
        batches are sent again.
        """
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_name(f"{self._file.name}.partial")
        partial.write_text(json.dumps({**self._stream, "sent": sent}) + "\n")
        partial.replace(self._file)


def records_in(client: KafkaClient, topic: str, clock: Clock, timeout_s: float = _TOPIC_TIMEOUT_S) -> int:
    """Waits until `topic` exists, and returns the number of records that were ever sent to it.

    Raises FeedError after `timeout_s`, StreamRuntimeError when Kafka does not answer.
    """
    admin = client.admin()
    try:
        end_s = clock.monotonic_s() + timeout_s
        while (partitions := admin.partitions(topic)) is None:
            if clock.monotonic_s() >= end_s:
                raise FeedError(f"there is no topic {topic}: start the table's coordinator, which creates it")
            clock.sleep(_WAIT_S)
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(admin.end_offset(place, Isolation.READ_UNCOMMITTED) for place in places)
    finally:
        admin.close()


def feed(
    client: KafkaClient, topic: str, stream: EventStream, position: Position, rate: int, clock: Clock
) -> int:
    """Sends the records that were not sent before, at most `rate` per second (0: as fast as Kafka takes
    them).

    Returns the number of records that this call sent.
    """
    before = position.read(records_in(client, topic, clock))
    if before:
        _log.info("%d of %d records were sent before", before, len(stream))
    producer = client.plain_producer()
    sent = 0
    started_s = said_s = clock.monotonic_s()
    try:
        for number, batch in enumerate(stream.batches(BATCH_RECORDS)):
            if number * BATCH_RECORDS < before:
                continue
            producer.produce_batch(topic, batch.records)
            producer.flush()
            sent += len(batch.records)
            position.write(before + sent)
            now_s = clock.monotonic_s()
            if now_s - said_s >= _SAY_EVERY_S:
                said_s = now_s
                _log.info("%d of %d records sent", before + sent, len(stream))
            if rate:
                clock.sleep(max(0.0, started_s + sent / rate - now_s))
    finally:
        producer.close()
    return sent


def build_parser() -> argparse.ArgumentParser:
    """The parser of the module."""
    parser = argparse.ArgumentParser(
        prog="feed",
        description="Send the flights of 2013 to a table's input topic; continue where a former run stopped.",
    )
    parser.add_argument("-c", "--config", required=True, metavar="F", help="the table's YAML file")
    parser.add_argument(
        "--months",
        type=whole_number(0, MONTHS_MAX),
        default=1,
        metavar="N",
        help=f"months of 2013, at most {MONTHS_MAX}; 0 sends nothing (default: 1)",
    )
    parser.add_argument(
        "--rate",
        type=whole_number(0, RATE_MAX),
        default=RATE_DEFAULT,
        metavar="N",
        help=f"records a second, 0 for as fast as Kafka takes them (default: {RATE_DEFAULT})",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Sends the stream. Exit code 1 when a part could not be sent: start it again."""
    options = build_parser().parse_args(arguments)
    if options.months == 0:
        sys.stderr.write("feed: no month is asked for: nothing is sent\n")
        return 0
    configure_logging("feed")
    clock = SystemClock()
    try:
        config = resolve_addresses(load_config(options.config))
        client = ConfluentKafkaClient.from_config(config, clock=clock)
        stream = EventStream(options.months)
        topic = config.input.topics[0]
        position = Position(config.state.path / POSITION_FILE, topic, options.months)
        sent = feed(client, topic, stream, position, options.rate, clock)
    except (FeedError, DemoSourceError, TidemarkError) as error:
        sys.stderr.write(f"feed: {printable(str(error))}\n")
        return 1
    _log.info("all %d records are in %s, %d of them sent now", len(stream), topic, sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
