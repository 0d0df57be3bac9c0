"""Fetches jars and their dependencies with Ivy. PySpark contains Ivy, so no build tool has to be installed.

Ivy fetches from Maven Central by default. On a machine that needs a mirror `TIDEMARK_IVY_SETTINGS` names an
Ivy settings file, like Spark's `spark.jars.ivySettings`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from tidemark.stream_runtime.platform.errors import JarsUnavailableError
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.platform.trust import trust_store_options

SETTINGS_VARIABLE: Final = "TIDEMARK_IVY_SETTINGS"
_TIMEOUT_S: Final = 900
_REPORT_LINES_MAX: Final = 40
_DOWNLOAD = re.compile(r"^downloading \S*/(?P<file>\S+\.jar)\b")


@dataclass(frozen=True)
class Module:
    """A released module, as a repository names it."""

    organisation: str
    name: str
    revision: str
    transitive: bool = True
    """False for a bundle that contains its dependencies."""


@dataclass(frozen=True)
class Exclusion:
    """A dependency that is not fetched. The module `*` stands for all modules of the organisation."""

    organisation: str
    module: str = "*"


def module_file(modules: Sequence[Module], exclusions: Sequence[Exclusion]) -> str:
    """The text of an ivy.xml that asks for `modules` without `exclusions`."""
    dependencies = "".join(
        f"    <dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)}"
        f" rev={quoteattr(module.revision)}"
        f' conf="default->{"default" if module.transitive else "master"}"/>\n'
        for module in modules
    )
    excludes = "".join(
        f"    <exclude org={quoteattr(exclusion.organisation)} module={quoteattr(exclusion.module)}/>\n"
        for exclusion in exclusions
    )
    return (
        '<ivy-module version="2.0">\n  <info organisation="tidemark" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}{excludes}  </dependencies>\n</ivy-module>\n"
    )


def retrieve(java: JavaRuntime, request: str, folder: Path, report: Callable[[str], None]) -> Path:
    """Fetches the jars that `request` (the text of an ivy.xml) asks for into `folder`; returns their folder.

    `report` is called with the name of each jar that is downloaded. Jars that were downloaded before a
    failure stay in `folder`, and the next call does not download them again. Raises JarsUnavailableError with
    the end of Ivy's report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jars = folder / "jars"
    (folder / "ivy.xml").write_text(request)
    command = [
        *(str(java.executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Divy.default.ivy.user.dir={folder / 'user'}",
        *(trust_store_options(folder.parent) if java.bundled else []),
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *_settings(),
        *("-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "downloads"), "-confs", "default"),
        # OSGi bundles are jars, too: without this type six of Kafka's jars are missing.
        *("-types", "jar", "bundle", "-sync"),
        *("-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    tail: deque[str] = deque(maxlen=_REPORT_LINES_MAX)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        overdue = threading.Timer(_TIMEOUT_S, process.kill)
        overdue.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.rstrip())
                if download := _DOWNLOAD.match(line):
                    report(download.group("file"))
        finally:
            overdue.cancel()
    if process.returncode != 0:
        said = "\n".join(line for line in tail if line)
        raise JarsUnavailableError(f"Ivy ended with exit code {process.returncode}:\n{said}")
    return jars


def _settings() -> list[str]:
    settings = os.environ.get(SETTINGS_VARIABLE)
    if not settings:
        return []
    if not Path(settings).is_file():
        raise JarsUnavailableError(f"{SETTINGS_VARIABLE} names {settings}, which is not a file")
    return ["-settings", settings]


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    jars = (
        sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar")) if pyspark and pyspark.origin else []
    )
    if not jars:
        raise JarsUnavailableError("PySpark, which contains Ivy, is not installed: run `make setup`")
    return jars[-1]
