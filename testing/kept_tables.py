"""Tables kept in memory, in the bytes that a folder would have. What is asked for is there, but not always:
files go to make room, and disks are lost.
"""

from __future__ import annotations

import pyarrow as pa

from tidemark.hudi_format.file_group.kept_tables import Make, read_tables, write_tables


class MemoryKept:
    """`KeptTables` that loses the name that is asked for at every so many questions; 0: none."""

    def __init__(self, lost_every: int = 0) -> None:
        self._lost_every = lost_every
        self._files: dict[str, pa.Buffer] = {}
        self._asked = self.answered = 0

    def get(self, name: str) -> list[pa.Table] | None:
        self._asked += 1
        if self._lost_every and self._asked % self._lost_every == 0:
            self._files.pop(name, None)
        if name not in self._files:
            return None
        self.answered += 1
        return read_tables(pa.BufferReader(self._files[name]))

    def put(self, name: str, nbytes: int, make: Make) -> None:
        sink = pa.BufferOutputStream()
        write_tables(sink, make())
        self._files[name] = sink.getvalue()
