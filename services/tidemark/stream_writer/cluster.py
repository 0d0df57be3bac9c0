"""What the session needs beyond `job`'s settings when its executors are other processes or machines.

Their Python workers are started by `stream_writer.spark_daemon`, before Spark applies any py-files. So our
code travels as an archive, which every executor unpacks into its working folder before its first task, and
PYTHONPATH names that folder. It stands before all else: whatever version a machine has, the driver's runs.
What the executors must bring: Python 3.11 with the packages of `executor_archive.DEPENDENCIES`, PySpark's
own files (docs/spark-cluster.md).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.config.spark_master import MasterKind, SparkMaster
from tidemark.stream_writer.errors import EngineSettingError

ARCHIVE: Final = "tidemark-executor.zip"
FOLDER: Final = "tidemark-executor"
_ARCHIVES_KEY: Final = "spark.archives"
_PYTHON_KEY: Final = "spark.pyspark.python"
_DEFAULTS: Final[Mapping[str, str]] = {
    # As in the driver: the executors' JVMs only hand tasks to Python.
    "spark.executor.memory": "512m",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # What YARN and Kubernetes allow beside the heap: the Python workers.
    "spark.executor.memoryOverhead": "1g",
}
_PEM_KEYS: Final[Mapping[str, str]] = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_LOOPBACK_ONLY: Final = ("spark.driver.host", "spark.driver.bindAddress")
_log: Final = logging.getLogger("tidemark.writer")


def lay_over(
    settings: Mapping[str, str], section: Mapping[str, str], master: SparkMaster, archive: Path
) -> dict[str, str]:
    """``settings`` (defaults with the table's ``section`` over them) completed for executors elsewhere.

    ``archive`` holds our code. The driver listens on loopback only if the master is there as well; else Spark
    chooses its address unless the section does.
    """
    completed = {**_DEFAULTS, **settings}
    if not master.is_loopback:
        for key in _LOOPBACK_ONLY:
            if key not in section:
                completed.pop(key, None)
    ours = f"{archive}#{FOLDER}"
    completed[_ARCHIVES_KEY] = ",".join(filter(None, (ours, section.get(_ARCHIVES_KEY))))
    return completed


def put_first_on_path(environment: dict[str, str]) -> None:
    """Has our code imported before all else by the executors' Python; ``environment`` is the session's.

    Spark puts this in front of the PYTHONPATH that an executor was started with. The setting
    spark.executorEnv.PYTHONPATH would take its place, and hide what an image has there.
    """
    environment["PYTHONPATH"] = FOLDER


def with_certificates(kafka: Mapping[str, str]) -> dict[str, str]:
    """The `kafka:` section with the contents of its PEM files, which executors elsewhere do not have.

    Raises EngineSettingError for a file that cannot be read.
    """
    settings = dict(kafka)
    for key, inline in _PEM_KEYS.items():
        path = settings.get(key)
        # A folder of certificates, or librdkafka's own word `probe`, stays: each machine has its own.
        if path is None or path == "probe" or Path(path).is_dir():
            continue
        try:
            settings[inline] = Path(path).read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise EngineSettingError(f"kafka.{key}: {path} is no readable PEM file ({error})") from None
        del settings[key]
    return settings


def executor_python(section: Mapping[str, str], env: Mapping[str, str]) -> str:
    """The interpreter of the executors: the setting, else what the environment says, else this one's path."""
    return section.get(_PYTHON_KEY) or env.get("PYSPARK_PYTHON") or sys.executable


def check_surroundings(master: SparkMaster, section: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Raises EngineSettingError for what Spark would not start without; warns of an open driver."""
    if master.kind is MasterKind.YARN and not (env.get("HADOOP_CONF_DIR") or env.get("YARN_CONF_DIR")):
        raise EngineSettingError(
            "spark.master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set: set one to the "
            "folder with the cluster's yarn-site.xml and core-site.xml"
        )
    if not master.is_loopback and section.get("spark.authenticate") != "true":
        _log.warning(
            "Spark's driver listens beyond this machine, and whoever reaches it can run code and read the "
            "tasks, Kafka's password in them: set spark.authenticate and spark.network.crypto.enabled to "
            "true (docs/spark-cluster.md)"
        )
