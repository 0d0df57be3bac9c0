"""A local folder whose files have the times of the simulation's clock.

The product asks how old a file is: a plan that is pending, a heartbeat, a file that nobody names. With the
times of the machine every file of a simulation would lie in the far future of its clock. Nothing would be old
enough, and what waits for a file's age would be tested by its other conditions alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.storage.base import FileContent
from tidemark.hudi_format.storage.local import LocalPieceWriter, LocalStorage


class ClockedStorage(LocalStorage):
    """`LocalStorage`; each write sets the file's modification time to that of `clock`. A second name that
    `link` or `rename` gives to a file keeps its time, as on a disk. A test may give it another clock than its
    coordinator has.
    """

    def __init__(self, base: Path, clock: Clock) -> None:
        super().__init__(base)
        self.clock = clock

    def create(self, path: str, data: FileContent) -> None:
        super().create(path, data)
        self.set_time(path)

    def publish(self, staging_dir: str, path: str, data: FileContent, overwrite: bool = False) -> None:
        super().publish(staging_dir, path, data, overwrite)
        self.set_time(path)

    def replace(self, path: str, data: FileContent) -> None:
        super().replace(path, data)
        self.set_time(path)

    def touch(self, path: str, create: bool = True) -> None:
        super().touch(path, create)
        if create or self.exists(path):
            self.set_time(path)

    def write_in_pieces(self, staging_dir: str, name: str) -> LocalPieceWriter:
        writer = super().write_in_pieces(staging_dir, name)
        close = writer.close

        def close_at_our_time() -> None:
            close()
            self.set_time(f"{staging_dir}/{name}")

        writer.close = close_at_our_time  # type: ignore[method-assign]
        return writer

    def set_time(self, path: str) -> None:
        """Gives the file the clock's time."""
        now_ns = self.clock.now_ms() * 1_000_000
        os.utime(self._absolute_file(path), ns=(now_ns, now_ns))
