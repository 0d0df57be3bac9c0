"""The benchmark's input, the same for every engine that is measured: rows, keys and batches from one seed.

A table of `keys` rows in `partitions` partitions, then batches of upserts: nine in ten rows update a random
existing key, one in ten inserts a new one, and a chosen share of the updates moves its row to another
partition. No key is twice in a batch. A row is about 250 bytes as JSON. Everything is made by whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("amount", pa.float64()),
        ("quantity", pa.int32()),
        ("status", pa.string()),
        ("note", pa.string()),
    ]
)
INSERT_SHARE: Final = 0.1
_STATUSES: Final = np.array(["created", "paid", "shipped", "returned"])
_NOTE_LENGTH: Final = 110
CHUNK_ROWS: Final = 100_000
_FIRST_TS: Final = 1_700_000_000_000
_HEX: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_DASHES: Final = (8, 13, 18, 23)
_DIGITS: Final = np.array([each for each in range(36) if each not in _DASHES])

Numbers = npt.NDArray[np.int64]


class Workload:
    """Makes the rows and remembers what was last written of each key: `region_of[number]`, its partition, and
    `ts_of[number]`, its ordering value, which names the batch. Both together are the model of the table.

    Key numbers are 0 … `len(region_of)` - 1; `key_text` gives their text, which scatters them.
    """

    def __init__(self, keys: int, partitions: int = 16, seed: int = 17452) -> None:
        self.partitions = partitions
        self._random = np.random.default_rng(seed)
        self._ts = _FIRST_TS
        self.region_of: npt.NDArray[np.int16] = self._random.integers(0, partitions, keys).astype(np.int16)
        self.ts_of: Numbers = np.zeros(keys, dtype=np.int64)

    @staticmethod
    def kept(file: Path) -> Workload:
        """What `keep` wrote: the batches go on behind those that were made."""
        with np.load(file) as found:
            workload = Workload(0, int(found["partitions"]))
            workload._ts = int(found["ts"])
            workload._random = np.random.default_rng(workload._ts)
            workload.region_of, workload.ts_of = found["region_of"], found["ts_of"]
        return workload

    def keep(self, file: Path) -> None:
        """Writes the model of the table, and which batch is the next, into a file (.npz)."""
        np.savez(file, region_of=self.region_of, ts_of=self.ts_of, partitions=self.partitions, ts=self._ts)

    def initial_rows(self) -> Iterator[pa.Table]:
        """Every key once, in chunks of at most 100 000 rows."""
        for first in range(0, self.region_of.size, CHUNK_ROWS):
            yield self._rows(np.arange(first, min(first + CHUNK_ROWS, self.region_of.size), dtype=np.int64))

    def partition_rows(self, partition: int) -> pa.Table:
        """All rows of a partition."""
        return self._rows(np.flatnonzero(self.region_of == partition).astype(np.int64))

    def batch(self, size: int, move_share: float = 0.0) -> pa.Table:
        """The next batch of `size` upserts in random order; `move_share` of its updates change partition."""
        inserts = int(size * INSERT_SHARE)
        updates = self._random.choice(self.region_of.size, size - inserts, replace=False).astype(np.int64)
        moved = updates[: int(updates.size * move_share)]
        if moved.size:
            shift = self._random.integers(1, self.partitions, moved.size)
            self.region_of[moved] = (self.region_of[moved] + shift) % self.partitions
        new = np.arange(self.region_of.size, self.region_of.size + inserts, dtype=np.int64)
        regions = self._random.integers(0, self.partitions, inserts).astype(np.int16)
        self.region_of = np.concatenate([self.region_of, regions])
        self.ts_of = np.concatenate([self.ts_of, np.zeros(inserts, dtype=np.int64)])
        numbers = np.concatenate([updates, new])
        self._random.shuffle(numbers)
        return self._rows(numbers)

    def sample_keys(self, count: int) -> list[str]:
        """Random existing keys, each at most once."""
        chosen = self._random.choice(self.region_of.size, count, replace=False).astype(np.int64)
        return list(key_text(chosen).to_pylist())

    def expected(self) -> dict[str, tuple[int, int]]:
        """What the table must hold: partition -> (rows, sum of their ordering values)."""
        rows = np.bincount(self.region_of, minlength=self.partitions)
        return {
            f"p{number:02d}": (int(count), int(self.ts_of[self.region_of == number].sum()))
            for number, count in enumerate(rows)
        }

    def _rows(self, numbers: Numbers) -> pa.Table:
        self._ts += 1
        self.ts_of[numbers] = self._ts
        count = numbers.size
        random = self._random
        regions = [f"p{each:02d}" for each in range(self.partitions)]
        region = pa.DictionaryArray.from_arrays(pa.array(self.region_of[numbers]), pa.array(regions))
        note = _HEX[random.integers(0, 16, (count, _NOTE_LENGTH), dtype=np.uint8)]
        columns = [
            key_text(numbers),
            region.cast(pa.string()),
            pa.array(np.full(count, self._ts)),
            pa.array(np.round(random.random(count) * 1000, 2)),
            pa.array(random.integers(1, 100, count, dtype=np.int32)),
            pa.array(_STATUSES[random.integers(0, len(_STATUSES), count)], pa.string()),
            _fixed_width_text(note),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def key_text(numbers: Numbers) -> pa.StringArray:
    """The keys of these numbers: text in the form of a UUID, scattered evenly, each number its own."""
    # Multiplying by an odd number and xor-shift are bijections of 64-bit integers: no two numbers collide.
    low = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    low ^= low >> np.uint64(29)
    low *= np.uint64(0xBF58476D1CE4E5B9)
    high = (low ^ (low >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    raw = np.stack([high, low], axis=1).astype(">u8").view(np.uint8).reshape(numbers.size, 16)
    text = np.full((numbers.size, 36), ord("-"), dtype=np.uint8)
    text[:, _DIGITS[0::2]] = _HEX[raw >> 4]
    text[:, _DIGITS[1::2]] = _HEX[raw & 15]
    return _fixed_width_text(text)


def _fixed_width_text(characters: npt.NDArray[np.uint8]) -> pa.StringArray:
    count, width = characters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))
    )
