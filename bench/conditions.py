"""What a figure depends on: the machine, how busy it was, and the versions of everything involved."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psutil

from tidemark.stream_runtime.platform.java import find_java

_PACKAGES: Final = ("confluent-kafka", "pyspark", "pyarrow", "numpy", "rocksdict", "hudi")


def conditions() -> dict[str, Any]:
    """The machine and the versions; takes no time worth mentioning."""
    return {
        "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "commit": _commit(),
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": find_java().version,
        "packages": {name: version(name) for name in _PACKAGES},
        "load_average": load_average(),
    }


def load_average() -> list[float]:
    """Of the last 1, 5 and 15 minutes: above zero before the start, others were working here."""
    return [round(each, 2) for each in os.getloadavg()]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return asked.stdout.strip()
