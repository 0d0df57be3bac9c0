"""What Kafka's own tool writes into an empty data folder, kept for the next new broker that is set up alike.

The tool (`kafka.tools.StorageTool format`) is a JVM, a second of CPU for two small files: the first snapshot
of the cluster's metadata, which says what this Kafka can do and is alike for all clusters with the same jars
and settings, and `meta.properties`, which names the cluster, the node and the folder. So the snapshot of the
first new broker is kept; a later one gets the same, and names of its own. Nothing ever needs what is kept,
and no start fails because it cannot be read or written:

* The kept file's name has a checksum of each jar's path, size and time of change, and of the broker's
  settings: of the names of all, and of the values of all but ids, ports and paths (`_OWN`). Other jars or
  settings have another file. It has a checksum of the content, too: a file that was cut short is taken for
  none.
* Where the tool writes anything else than these two files as they are known here, nothing is kept.
* Brokers whose own settings may make the tool write what is theirs alone (`_TOOL_ALONE`) are formatted by it.
* `meta.properties` comes last and by a rename, when the snapshot is on the disk together with its folders: a
  folder without it is not formatted, also after a loss of power.

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
from tidemark.stream_runtime.platform.class_data import identity, keep_newest
from tidemark.stream_runtime.platform.jars import cache_dir

NAMES: Final = "meta.properties"
SNAPSHOT: Final = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
KEPT_MAX: Final = 32
"""The newest; of other jars or settings, or written by two processes at the same time."""
SNAPSHOT_BYTES_MAX: Final = 64 << 10
_FOLDER: Final = "broker-format"
_TOOL_ALONE: Final = ("log.dir", "metadata.log.dir", "controller.quorum.", "unstable.")
"""Beginnings of settings' names: where the files lie, who votes (the snapshot of a dynamic quorum names the
voters), and which unfinished features are on.
"""
_OWN: Final = ("node.id", "controller.quorum.voters", "listeners", "advertised.listeners", "log.dirs")
"""Settings whose values differ between brokers that are set up alike."""


class BrokerFormat:
    """What is kept for brokers that start with these `jars` and settings."""

    def __init__(
        self,
        jars: Iterable[Path],
        usual: Mapping[str, str],
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`usual`: `broker_files.server_settings` of any node. `settings`: what the caller adds to them."""
        self._stem = _checksum("".join([*map(identity, jars), *_lines({**usual, **settings})]).encode())
        self._folder = cache_dir(os.environ if environment is None else environment) / _FOLDER
        self._is_usual = not any(name.startswith(_TOOL_ALONE) for name in settings)

    def apply(self, data: Path, cluster_id: str, node_id: int, ids: IdSource) -> bool:
        """Formats the folder; False if the tool has to, and then nothing was written."""
        snapshot = self._kept() if self._is_usual else None
        if snapshot is None:
            return False
        (data / SNAPSHOT).parent.mkdir(parents=True, exist_ok=True)
        _write(data / SNAPSHOT, snapshot)
        _sync_folder((data / SNAPSHOT).parent)
        _sync_folder(data)
        _write(data / NAMES, _names(cluster_id, node_id, new_kafka_id(ids)))
        return True

    def keep(self, data: Path, cluster_id: str, node_id: int) -> None:
        """Keeps what the tool has just written into the folder, unless that is something new to us, or the
        cache cannot be written.
        """
        # ValueError: of names that are not UTF-8.
        with contextlib.suppress(OSError, ValueError):
            if not self._is_usual or not _is_as_known(data, cluster_id, node_id):
                return
            snapshot = (data / SNAPSHOT).read_bytes()
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._folder / f"{self._stem}-{_checksum(snapshot)}.checkpoint"
            _write(file, snapshot)
            # The one that was just written stays, whatever the times say.
            keep_newest((one for one in self._folder.glob("*.checkpoint") if one != file), KEPT_MAX - 1)

    def _kept(self) -> bytes | None:
        with contextlib.suppress(OSError):
            for file in self._folder.glob(f"{self._stem}-*.checkpoint"):
                with contextlib.suppress(OSError):
                    content = file.read_bytes()
                    if file.stem == f"{self._stem}-{_checksum(content)}":
                        return content
        return None


def _lines(settings: Mapping[str, str]) -> list[str]:
    """What the tool may read of the settings and is not a broker's own, as lines in order."""
    return [f"{name}={'' if name in _OWN else value}\n" for name, value in sorted(settings.items())]


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
    text = (data / NAMES).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    ids = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    # With no such line, or two of them, the lines are not ours.
    ours = _names(cluster_id, node_id, ids[0] if ids else "").decode().splitlines()
    return ids != [""] and sorted(lines) == sorted(ours)


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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
