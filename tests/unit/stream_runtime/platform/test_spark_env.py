"""What a Spark driver and its Python workers are given."""

import subprocess
import sys
from pathlib import Path

from tidemark.stream_runtime.platform import spark_env
from tidemark.stream_runtime.platform.java import find_java


def test_workers_run_this_interpreter_and_warnings_go_to_the_log(tmp_path):
    environment = spark_env.spark_environment(find_java(), tmp_path / "scratch", tmp_path / "spark.log")
    assert environment["PYSPARK_PYTHON"] == sys.executable
    log_settings = (Path(environment["SPARK_CONF_DIR"]) / "log4j2.properties").read_text()
    assert f"appender.out.fileName = {tmp_path / 'spark.log'}" in log_settings


def test_who_sets_the_launchers_options_keeps_them(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS", raising=False)
    ours = spark_env.spark_environment(find_java(), tmp_path)
    assert "-XX:TieredStopAtLevel=1" in ours["SPARK_LAUNCHER_OPTS"]
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xint")
    assert spark_env.spark_environment(find_java(), tmp_path)["SPARK_LAUNCHER_OPTS"] == "-Xint"


def test_daemon_module_is_one_that_workers_can_run():
    code = (
        f"import importlib.util, sys; sys.exit(importlib.util.find_spec({spark_env.DAEMON_MODULE!r}) is None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_archives_leave_the_import_path_with_their_importers():
    """In an interpreter of its own: here any thread of an earlier test that imports something meanwhile would
    be led by this path, and leave its importers in the cache.
    """
    script = (
        "import sys, pyspark, py4j; from tidemark.stream_runtime.platform import spark_daemon;"
        # As plain files, wherever this test runs: an interpreter without them keeps the archives.
        "archives = ['/a/pyspark.zip', '/a/py4j-0.10-src.zip', '/a/spark-core.jar'];"
        "sys.path[:] = [archives[0], '/plain', *archives[1:]];"
        "sys.path_importer_cache.clear();"
        "sys.path_importer_cache.update({archives[0]: None, '/plain': None});"
        "spark_daemon.drop_archives();"
        "assert sys.path == ['/plain'], sys.path;"
        "assert sys.path_importer_cache == {'/plain': None}, sys.path_importer_cache"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
