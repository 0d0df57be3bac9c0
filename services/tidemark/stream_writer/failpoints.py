"""The failpoints of the writer's driver and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, FailpointRegistry


class WriterFailpoint(StrEnum):
    """The driver passes `WRITER_*`, after the step of that name (`WRITER_INDEXED` after each log file of an
    index that it writes itself), and `MERGES_*` on the thread that works on service actions: after one was
    begun, after a wave of merges, after the report. Spark's Python workers pass `FIRST_TASK_*`, only in the
    first attempt of a task; armed once, they act in every worker process.
    """

    WRITER_BEGUN = "writer_begun"
    WRITER_INDEXED = "writer_indexed"
    WRITER_WRITTEN = "writer_written"
    WRITER_REPORTED = "writer_reported"
    MERGES_BEGUN = "merges_begun"
    MERGES_WAVE = "merges_wave"
    MERGES_REPORTED = "merges_reported"
    FIRST_TASK_ATTEMPT = "first_task_attempt"
    FIRST_TASK_PUBLISHED = "first_task_published"


def worker_failpoints(env: Mapping[str, str]) -> FailpointRegistry:
    """The failpoints that the environment of a Python worker arms. Unknown names are skipped here, because
    the driver has checked them.
    """
    orders = env.get(ENVIRONMENT_VARIABLE, "").split(",")
    foreign = frozenset(order.partition(":")[0] for order in orders) - frozenset(WriterFailpoint)
    return FailpointRegistry.from_environment(WriterFailpoint, env, foreign)
