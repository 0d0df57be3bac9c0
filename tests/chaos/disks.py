"""Small disks that can be filled up: a tmpfs each, where this user may mount one.

Where mounting is refused the disk-full faults are left out, and the campaign says so; nothing else stands in
for a full disk. An ordinary user may mount in a namespace of their own: `unshare -Urm make chaos`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

SIZES_MIB: Final = {"table": 384, "state": 192, "kafka": 512}
BALLAST: Final = "ballast"
_CHUNK: Final = b"\0" * (1 << 16)


class SmallDisk:
    """One tmpfs. `fill` takes all that is free, `free` gives it back."""

    def __init__(self, folder: Path, size_mib: int) -> None:
        """Raises OSError where mounting is refused."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0755", "tmpfs", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise OSError(f"cannot mount a small disk: {done.stderr.strip()}")

    def fill(self) -> None:
        """Until nothing more fits."""
        with (self.folder / BALLAST).open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(_CHUNK)
            except OSError:
                return

    def free(self) -> None:
        (self.folder / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Lets the disk go with all that is on it; lazily, if something still looks at it."""
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


def small_disks(folder: Path) -> dict[str, SmallDisk]:
    """By what they are for. Raises OSError, with none left mounted."""
    disks: dict[str, SmallDisk] = {}
    try:
        for name, size_mib in SIZES_MIB.items():
            disks[name] = SmallDisk(folder / name, size_mib)
    except OSError:
        for disk in disks.values():
            disk.close()
        raise
    return disks
