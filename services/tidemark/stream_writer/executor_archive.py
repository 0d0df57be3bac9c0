"""What Spark's executors on other machines must have of Python, as one zip file.

Spark unpacks it into a folder of each executor (`spark.archives`), so what the workers import are plain
files. The driver's own code always travels; installed packages only when asked for. Equal contents give
equal bytes.
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

# What `spark_daemon.PRELOADED` brings in of ours.
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
# And of others'; none of them asks for further ones.
DEPENDENCIES: Final = ("confluent-kafka", "fastavro", "msgspec", "numpy", "protobuf", "pyarrow", "pyyaml")
# Their Python alone: every executor's Spark has the rest, and has these as archives that are slow to import.
_PYTHON_ONLY: Final = ("py4j", "pyspark")
# A zip cannot hold an earlier time.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644 << 16
_NOT_RUN: Final = (".md", ".pyc", ".pyi", ".so.a", ".h", ".hpp", ".pxd", ".pyx")


def write_archive(target: Path, *, dependencies: bool = False) -> int:
    """Writes the archive in one step and returns its size in bytes; ``dependencies`` adds installed packages.

    Raises EngineSettingError when one of them is not installed, OSError when it cannot be written.
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
    """(name in the archive, file) of Tidemark's packages, wherever they are installed."""
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
            # Scripts lie outside of site-packages.
            is_wanted = name not in _PYTHON_ONLY or entry.suffix == ".py"
            if is_wanted and ".." not in entry.parts and _runs(entry.as_posix()) and file.is_file():
                yield entry.as_posix(), file


def _runs(name: str) -> bool:
    return not name.endswith(_NOT_RUN) and "/tests/" not in name and "__pycache__" not in name
