"""What Kafka's own tool writes into an empty data folder, kept for the next new broker of the same jars.

The tool (`kafka.tools.StorageTool format`) is a JVM, a second of CPU for two small files: the first snapshot
of the cluster's metadata, which says what this Kafka can do and is alike for all clusters, and
`meta.properties`, which names the cluster, the node and the folder. So the snapshot of the first new broker
is kept; a later one gets the same, and names of its own. Nothing ever needs what is kept:

* The kept file's name has a checksum of each jar's path, size and time of change. Other jars have another
  file. It has a checksum of the content, too: a file that was cut short is taken for none.
* Where the tool writes anything else than these two files as they are known here, nothing is kept.
* Brokers whose settings may change what the tool writes (`_TOOL_ALONE`) are formatted by the tool.
* `meta.properties` comes last and by a rename: a folder without it is not formatted.

Not this module's job: to run the tool (`embedded_kafka`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.platform.broker_files import new_kafka_id
from tidemark.stream_runtime.platform.class_data import identity
from tidemark.stream_runtime.platform.jars import cache_dir

NAMES: Final = "meta.properties"
SNAPSHOT: Final = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
KEPT_MAX: Final = 4
"""The newest; of other jars, or written by two processes at the same time."""
SNAPSHOT_BYTES_MAX: Final = 64 << 10
_FOLDER: Final = "broker-format"
_TOOL_ALONE: Final = ("log.dir", "metadata.log.dir", "unstable.")
"""Beginnings of settings' names: where the files lie, and which unfinished features are on."""


class BrokerFormat:
    """What is kept for brokers that start with these `jars` and `settings`."""

    def __init__(
        self, jars: Iterable[Path], settings: Iterable[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """`settings`: the names of those that the caller adds to the usual ones."""
        self._stem = hashlib.sha256("".join(map(identity, jars)).encode()).hexdigest()[:16]
        self._folder = cache_dir(os.environ if environment is None else environment) / _FOLDER
        self._is_usual = not any(name.startswith(_TOOL_ALONE) for name in settings)

    def apply(self, data: Path, cluster_id: str, node_id: int, ids: IdSource) -> bool:
        """Formats the folder; False if the tool has to, and then nothing was written."""
        snapshot = self._kept() if self._is_usual else None
        if snapshot is None:
            return False
        (data / SNAPSHOT).parent.mkdir(parents=True, exist_ok=True)
        _write(data / SNAPSHOT, snapshot)
        _write(data / NAMES, _names(cluster_id, node_id, new_kafka_id(ids)))
        return True

    def keep(self, data: Path, cluster_id: str, node_id: int) -> None:
        """Keeps what the tool has just written into the folder, unless that is something new to us, or the
        cache cannot be written.
        """
        if not self._is_usual or not _is_as_known(data, cluster_id, node_id):
            return
        snapshot = (data / SNAPSHOT).read_bytes()
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            _write(self._folder / f"{self._stem}-{_checksum(snapshot)}.checkpoint", snapshot)
            _make_room(self._folder)

    def _kept(self) -> bytes | None:
        for file in self._folder.glob(f"{self._stem}-*.checkpoint"):
            with contextlib.suppress(OSError):
                content = file.read_bytes()
                if file.stem == f"{self._stem}-{_checksum(content)}":
                    return content
        return None


def _names(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    lines = (
        "version=1",
        f"cluster.id={cluster_id}",
        f"node.id={node_id}",
        f"directory.id={directory_id}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _is_as_known(data: Path, cluster_id: str, node_id: int) -> bool:
    """Whether there are these two files and no other, with the lines that we would write."""
    there = {str(file.relative_to(data)) for file in data.rglob("*") if file.is_file()}
    if there != {NAMES, SNAPSHOT} or (data / SNAPSHOT).stat().st_size > SNAPSHOT_BYTES_MAX:
        return False
    lines = [line for line in (data / NAMES).read_text().splitlines() if line and line[0] != "#"]
    (directory_id,) = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")] or [""]
    ours = _names(cluster_id, node_id, directory_id).decode().splitlines()
    return bool(directory_id) and sorted(lines) == sorted(ours)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _write(file: Path, content: bytes) -> None:
    """By a rename, and synced before it, as the tool does. The process id keeps two writers apart."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _make_room(folder: Path) -> None:
    kept = sorted(folder.glob("*.checkpoint"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in kept[KEPT_MAX:]:
        file.unlink(missing_ok=True)
