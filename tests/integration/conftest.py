"""The order of this level, and which of its modules have one costly fixture for all their tests."""

from __future__ import annotations

import pytest
from xdist.remote import Producer

from tests.longest_first import Together, in_this_order

LONGEST_FIRST = (
    "test_spark_cluster",
    "test_two_assigners.py::test_members",
    "test_pipeline_edges.py::test_stops_starts",
    "test_hostile_input",
    "test_hanging_record",
    "test_bad_input",
    "test_two_assigners",
    "test_three_brokers",
    "test_pipeline_edges",
    "test_careful_child",
    "test_hostile_formats",
    "test_killed_creation",
    "test_services_beside_epochs",
    "test_spark_engine",
    "test_table_under_kafka_faults",
    "test_assign_service",
    "platform/test_embedded_kafka",
    "test_kafka_outage",
    "test_forgotten_deletions",
    "test_shuffle_service",
    "test_changing_topics",
    "test_input_start",
)
# Two workers of a Spark cluster, running pipelines, three brokers, a Spark session, a topic of huge batches.
WITH_ONE_FIXTURE = (
    "test_spark_cluster",
    "test_bad_input",
    "test_three_brokers",
    "test_spark_engine",
    "test_changing_topics",
    "test_hostile_input",
    "test_careful_child",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_this_order(items, LONGEST_FIRST)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log, WITH_ONE_FIXTURE) if config.getoption("dist") == "loadscope" else None
