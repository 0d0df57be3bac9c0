"""The long campaign between a table and Kafka (`make kafka-faults`): each fault once, then seeded ones.

TIDEMARK_KAFKA_FAULT_SEEDS says which seeds: "7", or "0-24".
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.faults.table_faults import ONE_REQUEST, READS, SERVICES, await_all
from tests.faults.table_rig import table_rig
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
_log = logging.getLogger("tidemark.test")

_FIRST, _, _LAST = os.environ.get("TIDEMARK_KAFKA_FAULT_SEEDS", "0-24").partition("-")
SEEDS = range(int(_FIRST), int(_LAST or _FIRST) + 1)
_ROUNDS = 6


def test_every_fault_of_a_single_request_leaves_the_table_right(kafka: EmbeddedKafka, tmp_path: Path):
    with table_rig(kafka, tmp_path) as rig:
        rig.start()
        for api, fault in ONE_REQUEST:
            for service in SERVICES:
                rig.faults.order(api, fault, service)
        for each in READS:
            rig.faults.order_read(*each)
        await_all(rig.faults.rules, rig.feed, 120.0)
        _log.info("all committed after %.1f s", rig.settle())
        rig.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_schedule_of_faults_leaves_the_table_right(kafka: EmbeddedKafka, tmp_path: Path, seed: int):
    with table_rig(kafka, tmp_path, seed) as rig:
        rig.start()
        for _ in range(_ROUNDS):
            happened, took_s = rig.any_round()
            _log.info("seed %d: %s: all committed after %.1f s", seed, ", ".join(happened), took_s)
        rig.check()
