"""The steps of the writer at which a crash test may let its driver or a task die, stop or fail."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, FailpointRegistry


class WriterFailpoint(StrEnum):
    """`WRITER_*` are passed by the driver, after the step is done. `FIRST_TASK_*` are passed by Spark's
    Python workers, in the first attempt of a task alone: armed once, they hit in every worker process.
    """

    WRITER_BEGUN = "writer_begun"
    WRITER_WRITTEN = "writer_written"
    WRITER_REPORTED = "writer_reported"
    FIRST_TASK_ATTEMPT = "first_task_attempt"
    FIRST_TASK_PUBLISHED = "first_task_published"


def worker_failpoints(env: Mapping[str, str]) -> FailpointRegistry:
    """What the environment of a Python worker arms; names of other services were checked by the driver."""
    orders = env.get(ENVIRONMENT_VARIABLE, "").split(",")
    foreign = frozenset(order.partition(":")[0] for order in orders) - frozenset(WriterFailpoint)
    return FailpointRegistry.from_environment(WriterFailpoint, env, foreign)
