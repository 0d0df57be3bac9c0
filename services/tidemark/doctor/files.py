"""Tries out what a file system can do, in a folder of its own that is removed again.

Publishing rests on this: `link()` makes a file appear with its whole content, and of two calls only the first
succeeds; no file can be linked out of a folder that was renamed away; what was synced stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.stream_runtime.clock import Clock

PREFIX: Final = ".tidemark-doctor-"
_SYNCS: Final = 5
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "virtiofs")
IN_MEMORY: Final = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a file system behaves. `lacks`: what it does wrong, one sentence each; `skew_ms`: the file system's
    time minus the machine's clock; `sync_ms`: the median time of making a small file durable.
    """

    lacks: tuple[str, ...]
    skew_ms: int
    sync_ms: float


def nearest_folder(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


@contextmanager
def trial_folder(parent: Path, name: str) -> Iterator[Path]:
    """Makes a private folder for the time of the block. Raises OSError when it cannot be made."""
    folder = parent / f"{PREFIX}{name}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def try_out(folder: Path, clock: Clock) -> Behaviour:
    """Tries everything in an empty folder. Raises OSError for an error that says nothing of the file system's
    abilities, such as a full disk.
    """
    before_ms = clock.now_ms()
    (folder / "time").write_bytes(b"")
    modified_ms = (folder / "time").stat().st_mtime_ns // 1_000_000
    after_ms = clock.now_ms()
    skew_ms = modified_ms - min(max(modified_ms, before_ms), after_ms)
    lacks = [*_links(folder), *_renames(folder), *_locks(folder)]
    return Behaviour(tuple(lacks), skew_ms, _sync_ms(folder, clock))


def _links(folder: Path) -> Iterator[str]:
    staged, target = folder / "staged", folder / "target"
    staged.write_bytes(b"first")
    try:
        os.link(staged, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        yield f"it has no hard links ({error.strerror})"
        return
    if target.read_bytes() != b"first":
        yield "a linked file is empty"
    other = folder / "other"
    other.write_bytes(b"second")
    with contextlib.suppress(FileExistsError):
        os.link(other, target)
        yield "a link takes the place of a file that is there"
    with contextlib.suppress(FileExistsError):
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        yield "O_EXCL opens a file that is there"


def _renames(folder: Path) -> Iterator[str]:
    new, old = folder / "new", folder / "old"
    new.write_bytes(b"new")
    old.write_bytes(b"old")
    os.rename(new, old)
    if old.read_bytes() != b"new" or new.exists():
        yield "a rename does not replace a file in one step"
    fence, away = folder / "fence", folder / "away"
    fence.mkdir()
    (fence / "file").write_bytes(b"")
    os.rename(fence, away)
    with contextlib.suppress(FileNotFoundError, OSError):
        os.link(fence / "file", folder / "too-late")
        yield "a file can be linked out of a folder that was renamed away"
    fence.mkdir()
    (fence / "file").write_bytes(b"")
    with contextlib.suppress(OSError):
        os.rename(fence, away)
        yield "a rename replaces a folder that is not empty"


def _locks(folder: Path) -> Iterator[str]:
    with (folder / "lock").open("w") as first, (folder / "lock").open("w") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            yield f"it has no flock() ({error.strerror})"
            return
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield "two processes may hold one flock()"


def _sync_ms(folder: Path, clock: Clock) -> float:
    """The median time to sync a file and then its folder, as publishing does."""
    took: list[float] = []
    for number in range(_SYNCS):
        started_s = clock.monotonic_s()
        with (folder / f"synced-{number}").open("wb") as file:
            file.write(bytes(4_096))
            file.flush()
            os.fsync(file.fileno())
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        took.append((clock.monotonic_s() - started_s) * 1_000)
    return sorted(took)[_SYNCS // 2]


def file_system(path: Path) -> str:
    """The kernel's name for the type of file system that holds a path; "" when it does not tell."""
    best, kind = "", ""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    real = f"{path.resolve()}/"
    for line in lines:
        left, _, right = line.partition(" - ")
        mounted = left.split()[4].encode().decode("unicode_escape").rstrip("/")
        if real.startswith(f"{mounted}/") and len(mounted) >= len(best):
            best, kind = mounted, right.split()[0]
    return kind
