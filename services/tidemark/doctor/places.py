"""Checks of the two folders on disk: the table's folder and the state folder."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidemark.config import TableConfigFile
from tidemark.doctor.checks import Finding, fails, ok, warning
from tidemark.doctor.files import (
    IN_MEMORY,
    NETWORK,
    Behaviour,
    file_system,
    nearest_folder,
    trial_folder,
    try_out,
)
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource

_FREE_BYTES_MIN: Final = 1 << 30
_SYNC_MS_MAX: Final = 100.0
SKEW_MS_MAX: Final = 2_000
_PARTITIONS_LOOKED_AT: Final = 20
_GIB: Final = 1 << 30
_POSIX: Final = "Use a local disk, or a mount with POSIX semantics (ext4, xfs, NFSv4)"


def table_folder(config: TableConfigFile, clock: Clock, ids: IdSource) -> Iterator[Finding]:
    """Checks that `table.path` can be made or written to, publishes safely, has space, and is one file
    system.
    """
    base = Path(open_storage(config.table.path).base_uri)
    place = nearest_folder(base)
    if not place.is_dir():
        yield fails(f"{place} is a file", "Choose another table.path, or move the file away")
        return
    inside = base / ".hoodie"
    yield from _tried_out(inside if inside.is_dir() else place, "table.path", clock, ids)
    yield from _kind(place, "table.path")
    yield from _space(place, _FREE_BYTES_MIN, "table.path")
    if inside.is_dir():
        yield from _one_file_system(base, inside)
    elif place != base:
        yield ok(f"{base} will be made at the first start, in {place}")


def state_folder(config: TableConfigFile, clock: Clock, ids: IdSource) -> Iterator[Finding]:
    """Checks `state.path`, which holds the caches and, with an embedded Kafka, its data."""
    path = config.state.path
    place = nearest_folder(path)
    if not place.is_dir():
        yield fails(f"{place} is a file", "Choose another state.path, or move the file away")
        return
    if place == path:
        yield from _private(path)
    yield from _tried_out(place, "state.path", clock, ids)
    kind = file_system(place)
    if kind in NETWORK:
        yield warning(
            f"state.path is on {kind}, and the caches in it are read for every record",
            "Put state.path on a local disk; every machine needs one of its own",
        )
    yield from _space(place, config.state.disk_bytes, "state.disk")


def _tried_out(place: Path, key: str, clock: Clock, ids: IdSource) -> Iterator[Finding]:
    user = f"user {os.getuid()}"
    if not os.access(place, os.W_OK | os.X_OK):
        yield fails(f"{place} ({key}) cannot be written to by {user}", f"chown or chmod it for {user}")
        return
    with trial_folder(place, ids.uuid()[:8]) as folder:
        behaviour = try_out(folder, clock)
    yield from _behaviour(behaviour, place, key)


def _behaviour(behaviour: Behaviour, place: Path, key: str) -> Iterator[Finding]:
    for lack in behaviour.lacks:
        yield fails(f"{place} ({key}): {lack}", _POSIX)
    if not behaviour.lacks:
        yield ok(f"{place}: files appear whole and only once, folders fence, locks hold")
    if abs(behaviour.skew_ms) > SKEW_MS_MAX:
        yield warning(
            f"{place}: its times are {behaviour.skew_ms / 1_000:+.1f} s off this machine's clock",
            "Set both clocks by NTP: heartbeats and locks are judged by these times",
        )
    if behaviour.sync_ms > _SYNC_MS_MAX:
        yield warning(
            f"{place}: making a small file durable takes {behaviour.sync_ms:.0f} ms; a commit makes several",
            "Expect slow commits, or use a faster disk",
        )


def _kind(place: Path, key: str) -> Iterator[Finding]:
    kind = file_system(place)
    if kind in NETWORK:
        yield warning(
            f"{key} is on {kind}: shared between machines",
            "Mount it without client caching of attributes (NFS: noac or actimeo=0) where services run on "
            "several machines",
        )
    elif kind.startswith("fuse"):
        yield warning(
            f"{key} is on {kind}",
            "Mounts of object stores have no link() and no atomic rename: use a POSIX file system",
        )
    elif kind in IN_MEMORY:
        yield warning(f"{key} is on {kind}: its files are lost when the machine stops", "Put it on a disk")


def _space(place: Path, wanted: int, key: str) -> Iterator[Finding]:
    free = shutil.disk_usage(place).free
    text = f"{place}: {free / _GIB:,.1f} GiB free"
    if free < wanted:
        yield warning(f"{text}, {key} needs {wanted / _GIB:,.1f} GiB", f"Free some space, or change {key}")
    else:
        yield ok(text)


def _private(path: Path) -> Iterator[Finding]:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        yield warning(f"{path} is a link", "Give the folder itself as state.path")
    elif status.st_uid != os.getuid():
        yield fails(f"{path} belongs to user {status.st_uid}", f"chown it to user {os.getuid()}")
    elif status.st_mode & 0o077:
        yield warning(
            f"{path} can be read by others (mode {stat.S_IMODE(status.st_mode):o})", f"chmod 700 {path}"
        )


def _one_file_system(base: Path, inside: Path) -> Iterator[Finding]:
    """Checks that partitions are on the file system of `.hoodie`: files are linked from there into
    their folders.
    """
    device = inside.stat().st_dev
    folders = [base, *sorted(entry for entry in base.iterdir() if entry.is_dir())[:_PARTITIONS_LOOKED_AT]]
    elsewhere = [str(folder) for folder in folders if folder.stat().st_dev != device]
    if elsewhere:
        yield fails(
            f"{elsewhere[0]} is on another file system than {inside}: files cannot be linked across",
            "Keep the whole table on one file system: no mounts or links to others below table.path",
        )
    else:
        yield ok("staging and partitions are on one file system")
