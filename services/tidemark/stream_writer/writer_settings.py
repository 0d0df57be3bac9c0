"""Spark settings that the writer has where a table's section `spark:` says nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.config.spark_master import DEFAULT_MASTER

WRITER_SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "tidemark-writer",
    "spark.master": DEFAULT_MASTER,
    "spark.python.daemon.module": "tidemark.stream_writer.spark_daemon",
    # The driver's JVM only hands tasks out: the first compiler tier is enough, and warms up faster.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    # Tasks need not wait for a near executor: they read Kafka, which is equally far from all.
    "spark.locality.wait": "0",
    # Spark keeps the status of so many jobs in memory, also if its web page is switched off.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.minBatchesToRetain": "5",
    # Through Hadoop's newer interface the two files of a batch start a dozen processes (`chmod`, `readlink`).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
}
