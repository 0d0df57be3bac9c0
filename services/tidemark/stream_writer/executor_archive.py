"""Makes the archive with the Python code that Spark's executors on other machines need.

Spark unpacks it into a folder of each executor (`spark.archives`), so the workers import plain files. It
always has the driver's own code; installed packages are added on request. Equal contents give equal bytes.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from tidemark.stream_writer.errors import EngineSettingError

# Our packages that `spark_daemon.PRELOADED` imports.
CODE: Final = (
    "tidemark.commit",
    "tidemark.config",
    "tidemark.epoch_protocol",
    "tidemark.errors",
    "tidemark.hudi_format",
    "tidemark.ledger_client",
    "tidemark.redaction",
    "tidemark.stream_runtime",
    "tidemark.stream_writer",
)
# The distributions that it imports. None of them has dependencies that are not in this list.
DEPENDENCIES: Final = ("confluent-kafka", "fastavro", "msgspec", "numpy", "protobuf", "pyarrow", "pyyaml")
# Only their Python files: every executor's Spark has the rest. It has these, too, but as archives, which are
# slow to import from.
_PYTHON_ONLY: Final = ("py4j", "pyspark")
# The earliest time that a zip file can store.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644 << 16
_NOT_RUN: Final = (".md", ".pyc", ".pyi", ".so.a", ".h", ".hpp", ".pxd", ".pyx")


def write_archive(target: Path, *, dependencies: bool = False) -> int:
    """Writes the archive by a rename and returns its size in bytes. ``dependencies`` adds the installed
    packages of `DEPENDENCIES`, and PySpark's Python files.

    Raises EngineSettingError if a package is not installed, OSError if the archive cannot be written.
    """
    entries = dict(_code())
    if dependencies:
        entries.update(_installed())
    partial = target.with_name(f"{target.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, file in sorted(entries.items()):
                entry = zipfile.ZipInfo(name, _TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = _MODE
                archive.writestr(entry, file.read_bytes())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def _code() -> Iterator[tuple[str, Path]]:
    """The files of Tidemark's packages, wherever they are installed: (name in the archive, file)."""
    for package in CODE:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise EngineSettingError(f"the package {package} is not installed as files: run `make setup`")
        name = package.replace(".", "/")
        folder = Path(spec.origin).parent
        for file in folder.rglob("*"):
            if file.is_file() and _runs(file.as_posix()) and not file.name.startswith("."):
                yield f"{name}/{file.relative_to(folder).as_posix()}", file


def _installed() -> Iterator[tuple[str, Path]]:
    for name in (*DEPENDENCIES, *_PYTHON_ONLY):
        try:
            listed = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            raise EngineSettingError(f"the package {name} is not installed: run `make setup`") from None
        for entry in listed:
            file = Path(str(entry.locate()))
            # Scripts are outside of site-packages (`..` in their entry).
            is_wanted = name not in _PYTHON_ONLY or entry.suffix == ".py"
            if is_wanted and ".." not in entry.parts and _runs(entry.as_posix()) and file.is_file():
                yield entry.as_posix(), file


def _runs(name: str) -> bool:
    return not name.endswith(_NOT_RUN) and "/tests/" not in name and "__pycache__" not in name
