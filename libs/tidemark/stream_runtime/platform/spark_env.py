"""The environment variables and Spark settings of a PySpark driver on this machine.

Both must be in place before PySpark builds its first session, because the driver's JVM reads them only then.
The caller lets a table's section `spark:` win over these settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.redaction import SECRET_NAME, names_a_secret
from tidemark.stream_runtime.platform.java import JavaRuntime

DAEMON_MODULE: Final = "tidemark.stream_runtime.platform.spark_daemon"

REDACTION: Final = "spark.redaction.regex"
"""The setting by which Spark hides values on its pages, in its logs and in its event log."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_DEFAULTS_FILE: Final = "spark-defaults.conf"
_LAUNCHER_OPTIONS: Final = "SPARK_LAUNCHER_OPTS"

_LOG4J_SETTINGS: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.name = out
{appender}
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
# Warnings of each start on a laptop: there is no native Hadoop library, and which address Spark chose.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = ERROR
logger.address.name = org.apache.spark.util.Utils
logger.address.level = ERROR
# Kafka's clients warn of harmless things, such as settings that they do not use.
logger.kafka.name = org.apache.kafka
logger.kafka.level = ERROR
"""
_CONSOLE_APPENDER: Final = "appender.out.type = Console\nappender.out.target = SYSTEM_ERR"
_FILE_APPENDER: Final = """\
appender.out.type = RollingFile
appender.out.fileName = {log}
appender.out.filePattern = {log}.%i
appender.out.policies.type = Policies
appender.out.policies.size.type = SizeBasedTriggeringPolicy
appender.out.policies.size.size = 8MB
appender.out.strategy.type = DefaultRolloverStrategy
appender.out.strategy.max = 3"""


def spark_environment(
    java: JavaRuntime,
    scratch: Path,
    log: Path | None = None,
    *,
    python: str = sys.executable,
    loopback: bool = True,
) -> dict[str, str]:
    """Environment variables of a driver process, to be put into `os.environ` before the first session.

    `scratch` is the folder for Spark's temporary files and log settings; it is created. Warnings go to `log`
    (rolled at 8 MiB, three former ones kept), else to stderr. `python` is the interpreter of the executors'
    workers. With `loopback` the driver listens on loopback only.
    """
    settings = _settings_folder(scratch)
    appender = _CONSOLE_APPENDER if log is None else _FILE_APPENDER.format(log=log)
    (settings / "log4j2.properties").write_text(_LOG4J_SETTINGS.format(appender=appender))
    environment = {
        "JAVA_HOME": str(java.home),
        # On this machine `python` must be this interpreter: another one would lack our packages.
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(settings),
        # A JVM of its own puts the driver's command line together: done before a second compiler pays.
        _LAUNCHER_OPTIONS: os.environ.get(_LAUNCHER_OPTIONS, "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
    }
    return {**environment, "SPARK_LOCAL_IP": "127.0.0.1"} if loopback else environment


def hide_secrets(settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Takes the secrets out of `settings` and returns the others, which may become arguments of the driver's
    JVM. All users of a machine can read the arguments of its processes.

    Settings whose names sound like secrets go into Spark's file of defaults, which only this user can read.
    """
    secrets = {key: value for key, value in settings.items() if names_a_secret(key)}
    file = _settings_folder(scratch) / _DEFAULTS_FILE
    file.unlink(missing_ok=True)
    if secrets:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as handle:
            handle.writelines(f"{key}={_property(value)}\n" for key, value in sorted(secrets.items()))
    return {key: value for key, value in settings.items() if key not in secrets}


def spark_settings(scratch: Path, memory: str = "512m") -> dict[str, str]:
    """The settings of a session on this machine: on loopback only, without web page, in UTC. `memory` is the
    driver's heap.
    """
    return {
        "spark.python.daemon.module": DAEMON_MODULE,
        "spark.driver.memory": memory,
        JAVA_OPTIONS: f"-Duser.timezone=UTC -XX:+UseSerialGC {_java_folders(scratch)}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        REDACTION: SECRET_NAME,
    }


def _settings_folder(scratch: Path) -> Path:
    folder = scratch / "spark-conf"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _property(value: str) -> str:
    """The value in the form of a Java properties file: ASCII letters and digits, all else escaped."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(
        chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes
    )


def _java_folders(scratch: Path) -> str:
    """JVM options for the folders of temporary files. In quotes for folders with a space, since Spark splits
    the options like a shell.
    """
    return f'"-Djava.io.tmpdir={scratch}" "-Dderby.system.home={scratch}"'
