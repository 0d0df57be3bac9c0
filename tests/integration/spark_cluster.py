"""A standalone Spark cluster on this machine: a master, and workers that Spark takes for different hosts.

Nothing of Tidemark is on its path: the processes run in folders of their own, with an environment of their
own, and the Python of the executors is a virtual environment that knows none of our packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil
import pyspark

from tests.own_ports import own_ports
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform import child
from tidemark.stream_runtime.platform.java import JavaRuntime

_READY_S: Final = 240.0
_GRACE_S: Final = 20.0
_SPARK_HOME: Final = Path(pyspark.__file__).parent
PACKAGES: Final = tuple(each for each in sys.path if Path(each).name == "site-packages")
"""Where this environment has what Tidemark needs. Of Tidemark it has a path file, which only itself reads."""


class SparkCluster:
    """Owns its processes: leaving the context ends each of them, and the executors that they started."""

    def __init__(self, folder: Path, java: JavaRuntime, secret: str) -> None:
        """`secret` is the cluster's: who does not have it (spark.authenticate.secret) is not let in."""
        folder.mkdir(parents=True)
        self.folder = folder
        self._java = java
        self._clock = SystemClock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port, self._page = own_ports(2)
        conf = folder / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(
            "spark.authenticate true\n"
            f"spark.authenticate.secret {secret}\n"
            "spark.network.crypto.enabled true\n"
        )
        self._conf = conf
        self._temporary = folder / "tmp"
        self._temporary.mkdir()

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start_master(self) -> None:
        """Returns at once; workers and drivers wait for it."""
        self._spawn(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page)),
        )

    def start_worker(self, host: str, environment: Mapping[str, str] | None = None) -> None:
        """A worker with one core, its executors with ``environment`` above all; returns at once."""
        port, page = own_ports(2)
        self._spawn(
            host,
            "org.apache.spark.deploy.worker.Worker",
            *("--host", host, "--port", str(port), "--webui-port", str(page)),
            *("--cores", "1", "--memory", "512m", "--work-dir", str(self.work(host)), self.master),
            environment=environment,
        )

    def work(self, host: str) -> Path:
        """Where a worker's executors live: a folder for each, with its code, stdout and stderr."""
        return self.folder / f"work-{host}"

    def kill_worker(self, host: str) -> None:
        """SIGKILL to the worker and all below it, as if its machine were gone. Repeatable."""
        if host not in self._processes:
            return
        processes = list(self.processes_of(host))
        child.kill(self._processes.pop(host), self._clock)
        for process in processes:
            _kill(process)

    def processes_of(self, host: str) -> Iterator[psutil.Process]:
        """The worker's executors and their Python processes."""
        yield from psutil.Process(self._processes[host].pid).children(recursive=True)

    def logs(self) -> str:
        """The ends of everything that the cluster's processes wrote."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("work-*/app-*/*/std*")]
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')[-3_000:]}" for file in files)

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in reversed(list(self._processes)):
            below = list(self.processes_of(host))
            child.end(self._processes.pop(host), self._clock, _GRACE_S)
            for process in below:
                _kill(process)

    def _spawn(
        self, name: str, main: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        command = [str(_SPARK_HOME / "bin" / "spark-class"), main, *arguments]
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "JAVA_HOME": str(self._java.home),
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_CONF_DIR": str(self._conf),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            # What is killed cannot remove the libraries that it unpacked: they stay in the test's folder.
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={self._temporary}",
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            **(environment or {}),
        }
        self._processes[name] = child.spawn(
            command, self.folder / f"{name}.log", environment=env, folder=self.folder
        )


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(10)
    except psutil.NoSuchProcess:
        return


def bare_python(folder: Path, *, with_packages: bool) -> Path:
    """A virtual environment that knows nothing of Tidemark; ``with_packages``: with all that it needs.

    Those come by a path file, and the path file that makes Tidemark importable here is not read with them.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    if with_packages:
        [site] = folder.glob("lib/python*/site-packages")
        (site / "packages.pth").write_text("\n".join(PACKAGES) + "\n")
    return folder / "bin" / "python"


def events(folder: Path) -> list[dict[str, Any]]:
    """Spark's event log of all applications, in the order written; a half line at the end is left out."""
    found: list[dict[str, Any]] = []
    for file in sorted(folder.glob("[!.]*"), key=os.path.getmtime):
        for line in file.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def wait_for(what: str, is_so: Any, timeout_s: float = _READY_S) -> Any:
    """The first true answer."""
    end = time.monotonic() + timeout_s
    while not (answer := is_so()):
        assert time.monotonic() < end, f"waited {timeout_s} s for {what}"
        time.sleep(0.05)
    return answer
