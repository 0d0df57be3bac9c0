"""Class data archives: what a JVM read and checked of its jars' classes, kept for the next one with them.

A Kafka or a Spark driver spends a third of the CPU of its start on loading classes. A JVM that was started to
record writes them to a file when it ends (`-XX:ArchiveClassesAtExit`), and later ones map that file
(`-XX:SharedArchiveFile`). `make class-data` records; nothing ever needs an archive:

* The file's name has a checksum of the Java and of each jar's path, size and time of change. Another Java or
  another jar has another file, or none.
* The JVM compares the same once more. It goes on without an archive that does not fit (`-Xshare:auto`, its
  default). A file that was cut short would crash it, so the name has the length, too.
* An archive appears by a rename, in the cache folder outside of the checkout. The newest `KEPT_MAX` of a name
  are kept, and none above `ARCHIVE_BYTES_MAX`.

Not this module's job: to start the JVMs that record (`tools/class_data.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.platform.jars import cache_dir

RECORD_VARIABLE: Final = "TIDEMARK_RECORD_CLASS_DATA"
"""Set in the environment of a process whose JVMs are to record: the name of the archive."""
KAFKA: Final = "kafka"
SPARK_DRIVER: Final = "spark-driver"
KEPT_MAX: Final = 4
ARCHIVE_BYTES_MAX: Final = 256 << 20
_FOLDER: Final = "class-data"
_PARTIAL: Final = ".partial"
_QUIET: Final = "-Xlog:cds=off,cds+dynamic=off,class+path=off"
"""A JVM tells on stdout of an archive that does not fit, and of classes that cannot be archived."""


def java_options(
    name: str, java_home: Path, jars: Iterable[Path], environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Options for a JVM whose class path begins with `jars` in this order: to use the archive, to record one,
    or none.
    """
    environment = os.environ if environment is None else environment
    stem = _stem(name, java_home, jars)
    folder = cache_dir(environment) / _FOLDER
    if environment.get(RECORD_VARIABLE) == name:
        return f"-XX:ArchiveClassesAtExit={folder / stem}{_PARTIAL}", _QUIET
    archive = _whole(folder, stem)
    return () if archive is None else (f"-XX:SharedArchiveFile={archive}", _QUIET)


def archive(
    name: str, java_home: Path, jars: Iterable[Path], environment: Mapping[str, str] | None = None
) -> Path | None:
    """The archive that `java_options` would use; None if there is none that is whole."""
    return _whole(cache_dir(environment) / _FOLDER, _stem(name, java_home, jars))


@contextmanager
def recording(
    name: str, java_home: Path, jars: Iterable[Path], environment: MutableMapping[str, str] | None = None
) -> Iterator[None]:
    """JVMs of `name` that start while the block runs record; the one that ends last in the block counts. An
    archive that is too large is not kept, and older ones make room.
    """
    variables = os.environ if environment is None else environment
    folder = cache_dir(variables) / _FOLDER
    stem = _stem(name, java_home, jars)
    partial = folder / f"{stem}{_PARTIAL}"
    folder.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    variables[RECORD_VARIABLE] = name
    try:
        yield
        size = partial.stat().st_size if partial.is_file() else 0
        if 0 < size <= ARCHIVE_BYTES_MAX:
            partial.rename(folder / f"{stem}-{size}.jsa")
            keep_newest(folder.glob(f"{name}-*.jsa"), KEPT_MAX)
    finally:
        del variables[RECORD_VARIABLE]
        partial.unlink(missing_ok=True)


def _stem(name: str, java_home: Path, jars: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in (java_home / "release", java_home / "lib" / "modules", *jars):
        digest.update(identity(file).encode())
    return f"{name}-{digest.hexdigest()[:16]}"


def _whole(folder: Path, stem: str) -> Path | None:
    """The archive whose length is the one in its name."""
    found = (file for file in folder.glob(f"{stem}-*.jsa") if file.stem == f"{stem}-{file.stat().st_size}")
    return next(found, None)


def keep_newest(files: Iterable[Path], count: int) -> None:
    """Deletes all of these files but so many that were changed last."""
    by_age = sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in by_age[count:]:
        file.unlink(missing_ok=True)


def identity(file: Path) -> str:
    """A line with the file's path, size and time of change (ns); without these where there is no file."""
    try:
        seen = file.stat()
    except OSError:
        return f"{file} -\n"
    return f"{file} {seen.st_size} {seen.st_mtime_ns}\n"
