"""What the Spark session needs in addition when its executors are other processes or machines.

`stream_writer.spark_daemon` starts their Python workers before Spark applies py-files. So our code is sent as
an archive (`spark.archives`), which every executor unpacks into its working folder before its first task, and
PYTHONPATH names that folder. It comes first on the path, so the driver's version runs, whatever version a
machine has. Executors need Python 3.11 with the packages of `executor_archive.DEPENDENCIES`, and PySpark as
plain files (docs/spark-cluster.md).
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
    # Small as in the driver: the executors' JVMs only pass tasks to Python.
    "spark.executor.memory": "512m",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # What YARN and Kubernetes allow in addition to the heap. The Python workers use it.
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
    """Completes ``settings`` (our defaults and the table's section `spark:`, which is also ``section``) for
    executors that are other processes or machines.

    ``archive`` is the file with our code. If the master is not on loopback, the driver is not bound to it
    either: Spark chooses its address unless the section names one.
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
    """Puts the folder of our code first on the import path of the executors' Python.

    ``environment`` is the Spark context's. Spark puts it in front of the PYTHONPATH that the executor was
    started with. The setting `spark.executorEnv.PYTHONPATH` would replace that PYTHONPATH, and hide packages
    of a container image.
    """
    environment["PYTHONPATH"] = FOLDER


def with_certificates(kafka: Mapping[str, str]) -> dict[str, str]:
    """The section `kafka:` with the contents of its PEM files in place of their paths, since other machines
    do not have these files.

    Raises EngineSettingError for a file that cannot be read.
    """
    settings = dict(kafka)
    for key, inline in _PEM_KEYS.items():
        path = settings.get(key)
        # A folder of certificates, and librdkafka's value `probe`, stay: they mean each machine's own.
        if path is None or path == "probe" or Path(path).is_dir():
            continue
        try:
            settings[inline] = Path(path).read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise EngineSettingError(f"kafka.{key}: {path} is not a readable PEM file ({error})") from None
        del settings[key]
    return settings


def executor_python(section: Mapping[str, str], env: Mapping[str, str]) -> str:
    """The executors' interpreter: `spark.pyspark.python`, else PYSPARK_PYTHON, else this process's path."""
    return section.get(_PYTHON_KEY) or env.get("PYSPARK_PYTHON") or sys.executable


def check_surroundings(master: SparkMaster, section: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Raises EngineSettingError for YARN without its configuration. Warns if other machines can reach a
    driver that does not authenticate them.
    """
    if master.kind is MasterKind.YARN and not (env.get("HADOOP_CONF_DIR") or env.get("YARN_CONF_DIR")):
        raise EngineSettingError(
            "spark.master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set: set one to the "
            "folder with the cluster's yarn-site.xml and core-site.xml"
        )
    if not master.is_loopback and section.get("spark.authenticate") != "true":
        _log.warning(
            "other machines can reach Spark's driver, and anyone who does can run code and read the tasks "
            "with Kafka's password in them: set spark.authenticate and spark.network.crypto.enabled to true "
            "(docs/spark-cluster.md)"
        )
