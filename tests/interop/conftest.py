"""The judge: one Spark session for all interop tests of a process; what takes longest begins first."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from xdist.remote import Producer

from tests.interop.drawn_cases import skip_all_but_the_drawn, told
from tests.interop.judge import HudiJudge
from tests.interop.spark_session import start_judge
from tests.longest_first import Together, in_this_order

LONGEST_FIRST = (
    "test_operations_beside_us",
    "test_pipeline_with_hudi",
    "test_secondary_run_with_hudi",
    "test_restored_tables",
    "test_left_entries",
    "test_rules_with_hudi",
    "test_rules_of_writes_with_hudi",
    "test_older_events_with_hudi",
    "test_timeline_with_hudi",
    "test_table_services_with_hudi",
    "test_archival_with_hudi",
    "test_concurrent_writers",
    "test_native_tables",
    "test_lock_with_hudi",
    "test_rollback_with_hudi",
    "test_schema_changes_with_hudi",
    "test_verify_with_hudi",
    "test_spark_tables",
    "test_hash_parity",
)
# A table of a dozen commits by Spark, a million keys.
WITH_ONE_FIXTURE = ("test_timeline_with_hudi", "test_hash_parity")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last: drawn are cases of those that -k and -m leave."""
    in_this_order(items, LONGEST_FIRST)
    skip_all_but_the_drawn(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats
    for line in told(each for outcome in ("passed", "failed", "error") for each in reports.get(outcome, ())):
        terminalreporter.write_line(line)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log, WITH_ONE_FIXTURE) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiJudge]:
    scratch = tmp_path_factory.mktemp("judge")
    spark = start_judge(scratch)
    yield HudiJudge(spark, scratch)
    spark.stop()
    # PySpark leaves the sockets of its answers in cycles. Behind the last test they would fail the run.
    gc.collect()
