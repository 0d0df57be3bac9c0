"""`input.start: latest`: what was in the topic before the table is not read; after that nothing is passed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from tests.integration.assign_world import PARTITIONS, ServedTable
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka

STARTS = ".hoodie/.aux/tidemark/input-starts.json"


@pytest.fixture
def table(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[ServedTable]:
    made = ServedTable(kafka, tmp_path, f"latest-{SystemIds().uuid()[:8]}", input_start="latest")
    yield made
    made.close()


def records(prefix: str, *partitions: int) -> list[tuple[str, dict[str, Any] | None]]:
    """Ten for each of these partitions of the input."""
    found: list[tuple[str, dict[str, Any] | None]] = []
    for partition in partitions:
        names = (f"{prefix}-{number}" for number in count())
        mine = (name for name in names if sum(name.encode()) % PARTITIONS == partition)
        found += [(name, {"day": "d", "at": 1}) for name in islice(mine, 10)]
    return found


def recorded_starts(table: ServedTable) -> dict[str, int]:
    """As soon as they are there."""
    end = time.monotonic() + 240.0
    while not table.storage.exists(STARTS):
        assert time.monotonic() < end, [each.errors for each in table.running]
        time.sleep(0.05)
    return dict(json.loads(table.storage.read(STARTS)))


def test_a_new_table_begins_at_the_end_of_the_topic_and_no_restart_jumps(table: ServedTable) -> None:
    table.produce(records("old", 0, 1, 2))
    table.sent = 0
    ends = {f"{table.input}:{partition}": 10 for partition in range(PARTITIONS)}
    table.coordinator()
    assert recorded_starts(table) == ends
    # Before there is anybody to read it; and nothing for the last partition.
    expected = records("new", 0, 1)
    table.produce(expected)
    table.assigner()
    table.writer()
    table.wait_until_committed()
    assert set(table.rows()) == {key for key, _ in expected}

    # Nobody runs and the local disk is lost: a partition that never counted still begins where it was to.
    table.close()
    table.running.clear()
    shutil.rmtree(table.config.state.path)
    later = records("later", 1, 2)
    table.produce(later)
    table.coordinator()
    table.assigner()
    table.writer()
    table.wait_until_committed()
    assert set(table.rows()) == {key for key, _ in [*expected, *later]}
    assert recorded_starts(table) == ends
