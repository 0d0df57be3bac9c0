"""Checks `spark.master`, and the keys of the `spark:` section that it requires.

The writer is the driver, so only masters are allowed that work with a driver outside the cluster (Spark's
client mode). Spark checks its settings itself. Here only those are checked whose errors would come late, or
not at all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tidemark.config.errors import ConfigError, Problems

DEFAULT_MASTER: Final = "local[2]"
_LOCAL: Final = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?")
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")
_KUBERNETES: Final = re.compile(r"k8s://(https?://)?[^\s/]+(/\S*)?")
_IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")


class MasterKind(Enum):
    LOCAL = "local"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """A parsed `spark.master`. ``hosts``: the masters of a standalone cluster; empty for all other kinds."""

    kind: MasterKind
    hosts: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether the executors are threads of the driver's own JVM."""
        return self.kind is MasterKind.LOCAL

    @property
    def is_loopback(self) -> bool:
        """Whether executors run on this machine, so the driver needs to be reachable only from here."""
        return self.is_local or (bool(self.hosts) and all(_is_loopback(host) for host in self.hosts))


def parse_master(text: str) -> SparkMaster:
    """Parses `spark.master`. Raises ValueError that says what to write instead."""
    if _LOCAL.fullmatch(text):
        return SparkMaster(MasterKind.LOCAL)
    if text == "yarn":
        return SparkMaster(MasterKind.YARN)
    if _KUBERNETES.fullmatch(text):
        return SparkMaster(MasterKind.KUBERNETES)
    if text.startswith("spark://"):
        matches = [_HOST_AND_PORT.fullmatch(part) for part in text.removeprefix("spark://").split(",")]
        hosts = tuple(match[1].strip("[]") for match in matches if match and 0 < int(match[2]) < 65_536)
        if len(hosts) == len(matches):
            return SparkMaster(MasterKind.STANDALONE, hosts)
    raise ValueError(
        f"{text!r} is no master that the writer can use: write local[N], spark://host:port (several as "
        "spark://host:port,host:port), yarn, or k8s://https://host:port (docs/spark-cluster.md)"
    )


def check_spark(
    problems: Problems, file: Path, section: Mapping[str, str], unknown: Collection[str] = ()
) -> dict[str, str]:
    """Notes settings with which no writer could start, and returns the `spark:` section without them.

    ``unknown``: keys of the file that the section lacks, because their values could not be read.
    """

    def note(key: str, said: str) -> None:
        problems.note(ConfigError(str(file), key, said))
        unusable.add(key)

    unusable: set[str] = set()
    for key in section:
        if not key.startswith("spark."):
            note(f"spark.{key}", f"is no key of Spark's: write `spark.{key}` below `spark:`")
            unusable.add(key)
    try:
        kind = parse_master(section.get("spark.master", DEFAULT_MASTER)).kind
    except ValueError as error:
        note("spark.master", str(error))
        kind = None
    if section.get("spark.submit.deployMode", "client") != "client":
        note(
            "spark.submit.deployMode",
            "must be client: the writer is the driver. Run `tidemark writer` where the driver is to be",
        )
    given = {key for key, value in section.items() if value} | set(unknown)
    if kind is MasterKind.KUBERNETES and not given.intersection(_IMAGES):
        note(_IMAGES[0], "is required: the image of the executors (docs/spark-cluster.md)")
    return {key: value for key, value in section.items() if key not in unusable}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
