"""What has to be true when all faults are over: asked of files, topics and the command line from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.archived import archived
from tests.chaos.cluster import TABLE
from tests.chaos.data_files import files_due, files_there, named_by_writes
from tests.chaos.table_views import by_key, read_rows
from tests.chaos.timeline_watch import Commit, completed, pending
from tests.input_model import Row

_COMMAND_S: Final = 180.0
_KAFKA_S: Final = 30.0
_METADATA_ROOT: Final = ".hoodie/metadata"
_LOG_FILE: Final = re.compile(r"\..*_(.*)\.log\.\d+_.*")


def check_rows(
    table: Path, expected: Mapping[str, Row], read: Callable[[Path], list[Row]] = read_rows
) -> Iterator[str]:
    """G1: the table is the model."""
    found = by_key(read(table))
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            yield f"{key}: the table has {found.get(key)}, the model {expected.get(key)}"


def check_verify(config: Path) -> Iterator[str]:
    """G2: record index = rows, by `tidemark verify`."""
    command = [sys.executable, "-m", "tidemark.cli.entry", "verify", "-c", str(config), "--full", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode or not json.loads(done.stdout)["agrees"]:
        yield f"tidemark verify ended with {done.returncode}: {done.stdout or done.stderr}"


def check_files(table: Path, commits: list[Commit]) -> Iterator[str]:
    """No data file that no write of the timeline names, none missing; nothing of a write left over; nobody's
    lock.
    """
    due, there = files_due(table, commits), files_there(table)
    yield from (f"orphan: {name} belongs to no commit" for name in sorted(there - due))
    yield from (f"{name} is in a commit, and not in the table" for name in sorted(due - there))
    yield from _check_metadata_files(table)
    if left := pending(table):
        yield f"instants that never ended: {sorted(left)}"
    for folder in (".hoodie/.temp", ".hoodie/.heartbeat"):
        if (table / folder).is_dir() and (found := sorted((table / folder).iterdir())):
            yield f"{folder} still holds {[each.name for each in found]}"
    if (table / ".hoodie/lock").exists():
        yield "the table's lock is still taken"


def _check_metadata_files(table: Path) -> Iterator[str]:
    """Log files of the metadata table name their instant: one that was committed, or of the bootstrap. Its
    base files are named by the write that made them, a compaction mostly.
    """
    root, timeline = table / _METADATA_ROOT, f"{_METADATA_ROOT}/.hoodie/timeline"
    instants = {*completed(table, timeline), *(row.requested for row in archived(table, timeline))}
    named = named_by_writes(table, timeline)
    for partition in _partitions(root):
        for file in sorted((root / partition).iterdir()):
            log = _LOG_FILE.fullmatch(file.name)
            is_known = log[1] in instants if log else f"{partition}/{file.name}" in named
            if (log or file.suffix == ".hfile") and not is_known:
                yield f"orphan: {partition}/{file.name} of the metadata table belongs to no commit"


def _partitions(root: Path) -> list[str]:
    """`files`, `record_index`, and whatever indexes the table keeps besides."""
    return sorted(each.name for each in root.iterdir() if each.is_dir() and each.name != ".hoodie")


def check_transactions(bootstrap: str) -> Iterator[str]:
    """No stuck transaction: what read_committed readers may read reaches the end of every partition."""
    for lane, (stable, end) in topic_ends(bootstrap).items():
        if stable < end:
            yield f"open transaction in {lane}: readers stop at {stable} of {end}"


def topic_ends(bootstrap: str) -> dict[str, tuple[int, int]]:
    """Per topic:partition of the table the ends for readers of committed messages, and of all messages.

    Raises KafkaException.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = admin.list_topics(timeout=_KAFKA_S).topics
    names = sorted(name for name in topics if name.startswith(f"{TABLE}."))
    lanes = [TopicPartition(name, number) for name in names for number in topics[name].partitions]
    ends = _ends(admin, lanes, committed=False)
    stable = _ends(admin, lanes, committed=True)
    return {lane: (stable[lane], end) for lane, end in ends.items()}


def _ends(admin: Any, lanes: list[TopicPartition], *, committed: bool) -> dict[str, int]:
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = admin.list_offsets(
        {lane: OffsetSpec.latest() for lane in lanes}, isolation_level=level, request_timeout=_KAFKA_S
    )
    return {f"{lane.topic}:{lane.partition}": found.result().offset for lane, found in asked.items()}


def check_dead_letters(bootstrap: str, broken: set[tuple[int, int]]) -> Iterator[str]:
    """G8: every broken record is a dead letter, and nothing else is."""
    found = Counter(_dead_letters(bootstrap))
    yield from (f"broken record {where} is no dead letter" for where in sorted(broken - found.keys()))
    yield from (f"dead letter for {where}, which is not broken" for where in sorted(found.keys() - broken))


def _dead_letters(bootstrap: str) -> Iterator[tuple[int, int]]:
    topic = f"{TABLE}.dead-letter"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-dead-letters",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, _KAFKA_S).topics[topic].partitions
        open_partitions = set(partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while open_partitions:
            message = consumer.poll(_KAFKA_S)
            if message is None:
                raise TimeoutError(f"{topic} cannot be read to its end")
            if message.error() is not None:
                open_partitions.discard(message.partition())
                continue
            headers: dict[str, Any] = dict(message.headers() or [])
            yield int(headers["tm-partition"]), int(headers["tm-offset"])
    finally:
        consumer.close()
