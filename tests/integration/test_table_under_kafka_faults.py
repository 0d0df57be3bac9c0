"""Coordinator, both stages and the writer behind a proxy that loses, delays and doubles requests to Kafka.

Whatever happens, the table is the replay of the input, each record once. `make kafka-faults` does more of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kafka_proxy import OK
from tests.faults.table_faults import await_all
from tests.faults.table_rig import Rig, table_rig
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.retry import Deadline

pytestmark = pytest.mark.kafka

_WAIT_S = 600.0


@pytest.fixture
def rig(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Rig]:
    with table_rig(kafka, tmp_path, seed=1) as made:
        yield made


def tear(rig: Rig, service: str, topic: str) -> None:
    """A late commit ends a transaction of the service between its batches and its entry.

    Batches are visible then that no entry names: the tear is real, for every reader of the topic. A service
    that took a new producer in between, as after a slow answer, makes the commit one of the past: then the
    next one is tried.
    """
    before = rig.unnamed(topic)
    deadline = Deadline(SystemClock(), _WAIT_S)
    while True:
        deadline.check(f"a torn transaction of {service}")
        rule = rig.faults.tear(service, rig.table.names.ledger)
        await_all([rule], rig.feed)
        while not rule.released:
            deadline.check("the late commit")
            rig.feed()
            deadline.sleep(0.2)
        rig.settle()
        if rule.released == [[OK]] and rig.unnamed(topic) - before:
            return


def test_torn_transactions_are_seen_by_all_and_count_nowhere(rig: Rig):
    rig.start()
    tear(rig, "assign-0", rig.table.names.data)
    tear(rig, "shuffle-0", rig.table.names.keyed)
    rig.check()


def test_random_faults_leave_the_table_right(rig: Rig):
    rig.start()
    rig.any_round()
    rig.any_round()
    rig.check()
