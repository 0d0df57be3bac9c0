"""The sets of jars that Tidemark runs, fetched once for each machine and checked against `jars.lock`.

A set has a folder in the cache. The folder's name contains a checksum of the modules that the set asks for
and of its lines in `jars.lock`, so a changed set gets another folder. The folder appears by a rename once all
its jars have the recorded SHA-256, so a folder that exists is complete.

`python -m tidemark.stream_runtime.platform.jars SET…` fetches sets. With `--lock` it records the jars that
the repository has now.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.platform import ivy
from tidemark.stream_runtime.platform.errors import JarsUnavailableError, PlatformError
from tidemark.stream_runtime.platform.java import JavaRuntime, find_java

CACHE_VARIABLE: Final = "TIDEMARK_CACHE_DIR"


def cache_dir(environment: Mapping[str, str] | None = None) -> Path:
    """`TIDEMARK_CACHE_DIR`, else `$XDG_CACHE_HOME/tidemark`, else `~/.cache/tidemark`. Not created here."""
    environment = os.environ if environment is None else environment
    if environment.get(CACHE_VARIABLE):
        return Path(environment[CACHE_VARIABLE]).absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "tidemark"


LOCK_FILE: Final = Path(__file__).with_name("jars.lock")
_TRIES_MAX: Final = 3
_PAUSE_S: Final = 2.0


@dataclass(frozen=True)
class JarSet:
    """A named class path: modules with their dependencies, without the exclusions."""

    name: str
    modules: tuple[ivy.Module, ...]
    exclusions: tuple[ivy.Exclusion, ...] = ()

    def request(self) -> str:
        """The text of the ivy.xml that asks for the set."""
        return ivy.module_file(self.modules, self.exclusions)


KAFKA: Final = JarSet(
    "kafka",
    (
        ivy.Module("org.apache.kafka", "kafka_2.13", "4.4.0"),
        # Kafka depends on no SLF4J binding. Without one the broker logs nothing.
        ivy.Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
    ),
    # Kafka 4.4.0 depends on it, but it was never released.
    (ivy.Exclusion("org.apache.kafka", "kafka-tools-api"),),
)
SPARK_KAFKA: Final = JarSet(
    "spark-kafka",
    (ivy.Module("org.apache.spark", "spark-sql-kafka-0-10_2.12", "3.5.7"),),
    # PySpark has these in the same versions, and Spark copies every additional jar at each start.
    (
        ivy.Exclusion("org.apache.spark", "spark-tags_2.12"),
        ivy.Exclusion("org.scala-lang"),
        ivy.Exclusion("org.apache.hadoop"),
        ivy.Exclusion("org.slf4j"),
        ivy.Exclusion("org.xerial.snappy"),
        ivy.Exclusion("org.lz4"),
        ivy.Exclusion("commons-logging"),
        ivy.Exclusion("com.google.code.findbugs"),
    ),
)
HUDI_SPARK: Final = JarSet(
    "hudi-spark",
    (ivy.Module("org.apache.hudi", "hudi-spark3.5-bundle_2.12", "1.2.0", transitive=False),),
)
JAR_SETS: Final[Mapping[str, JarSet]] = {jars.name: jars for jars in (KAFKA, SPARK_KAFKA, HUDI_SPARK)}


def ensure_jars(
    name: str,
    java: JavaRuntime | None = None,
    *,
    clock: Clock | None = None,
    cache: Path | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Path]:
    """The jars of a set (`name` is a key of JAR_SETS), sorted by name. Fetches them if the cache lacks them.

    Several processes may call it at once. Raises JarsUnavailableError after three failures, and if a jar
    differs from the recorded one.
    """
    jar_set = JAR_SETS[name]
    expected = read_lock().get(name, {})
    if not expected:
        raise JarsUnavailableError(f"{LOCK_FILE.name} has no jars of the set {name}: run with --lock")
    root = (cache or cache_dir()) / "jars"
    target = root / f"{name}-{_key(jar_set, expected)}"
    if not target.is_dir():
        say = report or _say
        with _exclusive(root / f".{name}.lock"):
            if not target.is_dir():
                _fetch(jar_set, expected, target, java or find_java(), clock or SystemClock(), say)
    return [target / jar for jar in sorted(expected)]


def cached_jars(name: str, cache: Path | None = None) -> Path | None:
    """The folder of a set in the cache; None if the cache does not have the set."""
    expected = read_lock().get(name, {})
    target = (cache or cache_dir()) / "jars" / f"{name}-{_key(JAR_SETS[name], expected)}"
    return target if target.is_dir() else None


def class_path(jars: Sequence[Path]) -> str:
    """The argument of `java -cp`. Raises JarsUnavailableError if a path contains the separator `:`."""
    if any(":" in str(jar) for jar in jars):
        raise JarsUnavailableError(
            f"the cache folder {jars[0].parent} must not contain ':': set TIDEMARK_CACHE_DIR"
        )
    return ":".join(map(str, jars))


def read_lock() -> dict[str, dict[str, str]]:
    """The contents of `jars.lock`: set name -> jar file name -> SHA-256 in hex."""
    sets: dict[str, dict[str, str]] = {}
    for line in LOCK_FILE.read_text().splitlines() if LOCK_FILE.is_file() else []:
        if line and not line.startswith("#"):
            name, jar, digest = line.split()
            sets.setdefault(name, {})[jar] = digest
    return sets


def _fetch(
    jar_set: JarSet,
    expected: Mapping[str, str],
    target: Path,
    java: JavaRuntime,
    clock: Clock,
    report: Callable[[str], None],
) -> None:
    started_s = clock.monotonic_s()
    report(f"jars: {jar_set.name}: resolving")
    scratch = target.with_name(f".{target.name}.partial")
    folder = _retrieve_with_retries(jar_set, scratch, java, clock, report)
    _check(jar_set.name, expected, _digests(folder))
    folder.rename(target)
    shutil.rmtree(scratch)
    size_mb = sum(jar.stat().st_size for jar in target.iterdir()) / 1e6
    took_s = clock.monotonic_s() - started_s
    report(f"jars: {jar_set.name}: {len(expected)} jars, {size_mb:.0f} MB in {took_s:.0f} s -> {target}")


def _retrieve_with_retries(
    jar_set: JarSet, scratch: Path, java: JavaRuntime, clock: Clock, report: Callable[[str], None]
) -> Path:
    for attempt in range(1, _TRIES_MAX + 1):
        try:
            return ivy.retrieve(
                java, jar_set.request(), scratch, lambda jar: report(f"jars: {jar_set.name}: {jar}")
            )
        except JarsUnavailableError as error:
            if attempt == _TRIES_MAX:
                raise JarsUnavailableError(
                    f"the jars of {jar_set.name} could not be fetched in {_TRIES_MAX} tries. "
                    f"Is there a network? For a mirror, set {ivy.SETTINGS_VARIABLE} to an Ivy settings "
                    f"file. {error}"
                ) from error
            report(f"jars: {jar_set.name}: try {attempt} of {_TRIES_MAX} failed, trying again")
            clock.sleep(_PAUSE_S * attempt)
    raise AssertionError("the last try either returns or raises")


def _check(name: str, expected: Mapping[str, str], fetched: Mapping[str, str]) -> None:
    if fetched == expected:
        return
    wrong = sorted(jar for jar in fetched.keys() & expected.keys() if fetched[jar] != expected[jar])
    raise JarsUnavailableError(
        f"the jars fetched for {name} are not those of {LOCK_FILE.name}: "
        f"missing {sorted(expected.keys() - fetched)}, unexpected {sorted(fetched.keys() - expected)}, "
        f"other content {wrong}"
    )


def _digests(folder: Path) -> dict[str, str]:
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.glob("*.jar"))}


def _key(jar_set: JarSet, expected: Mapping[str, str]) -> str:
    text = jar_set.request() + "".join(f"{jar} {expected[jar]}\n" for jar in sorted(expected))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def _exclusive(lock_file: Path) -> Iterator[None]:
    """Holds a lock among processes while the block runs. The kernel releases it if its holder dies."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _say(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def _record(names: Sequence[str]) -> None:
    """Rewrites the lines of the sets `names` in the lock file, from the jars that the repository has."""
    sets = read_lock()
    clock = SystemClock()
    for name in names:
        scratch = cache_dir() / "jars" / f".{name}.lock-run"
        sets[name] = _digests(_retrieve_with_retries(JAR_SETS[name], scratch, find_java(), clock, _say))
        shutil.rmtree(scratch)
    lines = [f"{name} {jar} {sets[name][jar]}\n" for name in JAR_SETS for jar in sorted(sets.get(name, {}))]
    LOCK_FILE.write_text(
        "# set, jar, SHA-256. Written by: python -m tidemark.stream_runtime.platform.jars --lock\n"
        + "".join(lines)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetches the named sets, or records them. Returns exit code 1 if a set cannot be fetched."""
    parser = argparse.ArgumentParser(prog="jars", description="Fetch the jar sets that Tidemark runs.")
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"any of: {', '.join(JAR_SETS)} (default: all)"
    )
    parser.add_argument("--lock", action="store_true", help="record the jars that the repository has now")
    options = parser.parse_args(arguments)
    names = options.sets or list(JAR_SETS)
    unknown = sorted(set(names) - JAR_SETS.keys())
    if unknown:
        parser.error(f"no such set: {', '.join(unknown)}; there are {', '.join(JAR_SETS)}")
    try:
        if options.lock:
            _record(names)
        else:
            for name in names:
                ensure_jars(name)
    except PlatformError as error:
        _say(f"jars: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
