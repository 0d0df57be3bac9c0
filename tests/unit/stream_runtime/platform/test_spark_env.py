"""What a Spark driver and its Python workers are given."""

import importlib
import subprocess
import sys
from pathlib import Path

from stream_runtime.platform import spark_daemon, spark_env
from stream_runtime.platform.java import find_java


def test_workers_run_this_interpreter_and_warnings_go_to_the_log(tmp_path):
    environment = spark_env.spark_environment(find_java(), tmp_path / "scratch", tmp_path / "spark.log")
    assert environment["PYSPARK_PYTHON"] == sys.executable
    log_settings = (Path(environment["SPARK_CONF_DIR"]) / "log4j2.properties").read_text()
    assert f"appender.out.fileName = {tmp_path / 'spark.log'}" in log_settings


def test_daemon_module_is_one_that_workers_can_run():
    code = (
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec({spark_env.DAEMON_MODULE!r}) is None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_archives_leave_the_import_path_with_their_importers(monkeypatch, tmp_path):
    # As plain files, wherever this test runs: an interpreter without them keeps the archives.
    for package in ("pyspark", "py4j"):
        importlib.import_module(package)
    archives = [str(tmp_path / name) for name in ("pyspark.zip", "py4j-0.10-src.zip", "spark-core.jar")]
    monkeypatch.setattr(sys, "path", [archives[0], "/plain", *archives[1:]])
    monkeypatch.setattr(sys, "path_importer_cache", {archives[0]: None, "/plain": None})
    spark_daemon.drop_archives()
    assert sys.path == ["/plain"]
    assert sys.path_importer_cache == {"/plain": None}
