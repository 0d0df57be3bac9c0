"""The judge: one Spark session for all interop tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_runtime.platform.jars import ensure_jars
from tests.interop.judge import HudiJudge
from tests.interop.spark_session import start_spark


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiJudge]:
    scratch = tmp_path_factory.mktemp("judge")
    spark = start_spark(ensure_jars("hudi-spark"), scratch)
    yield HudiJudge(spark, scratch)
    spark.stop()
