"""What owners of a lane leave in the topic of index entries, as files: a bench's heir reads it like an opened
lane, without Kafka.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.batches import INDEX_COLUMNS, IndexOp, decode_batch, encode_batch
from tidemark.epoch_protocol.entries import Counts, Produced, Topic, TransactionTagged
from tidemark.epoch_protocol.state import CountedTagged
from tidemark.index_assigner.assign.opening_chunks import OpeningChunks
from tidemark.index_assigner.index.tiered import TieredIndex

_ROWS_OF_MESSAGE: Final = 10_000


class TakenRows:
    """The transactions of all owners, none of them committed. ``owners``: how many there were; ``chunks``: in
    so many parts `load` read them last; ``nbytes``: of all messages.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._tagged: list[CountedTagged] = []
        self.owners = self.chunks = self.nbytes = 0

    def add(self, offset: int, keys: pa.StringArray, shards: npt.NDArray[np.int32]) -> None:
        """Writes one transaction: all keys in one file group, with ``offset`` as their ordering value."""
        size = messages = 0
        for first in range(0, len(keys), _ROWS_OF_MESSAGE):
            some = keys.slice(first, _ROWS_OF_MESSAGE)
            value = encode_batch(_rows(some, shards[first : first + len(some)], offset)).to_pybytes()
            (self._folder / f"{offset}-{messages}").write_bytes(value)
            size, messages = size + len(value), messages + 1
        made = Produced(Topic.INDEX, 0, 0, 0, messages, len(keys), 0)
        entry = TransactionTagged(0, str(offset), 0, {}, [], [made], Counts(), size, "")
        self._tagged.append(CountedTagged(offset, entry))
        self.nbytes += size

    def load(self, index: TieredIndex) -> int:
        """Gives lane 0 of the index all transactions, those of a chunk in memory together; returns their
        rows.
        """
        chunks, rows, self.chunks = OpeningChunks(), 0, 0
        for chunk in chunks.of(self._tagged, lambda counted: counted.entry.produced[0].records):
            read = {counted.offset: self._read(counted) for counted in chunk}
            chunks.was_read(batch for batches in read.values() for batch in batches)
            for offset, batches in read.items():
                index.load_counted(0, offset, batches)
                rows += sum(batch.num_rows for batch in batches)
            self.chunks += 1
        return rows

    def _read(self, counted: CountedTagged) -> list[pa.RecordBatch]:
        count = counted.entry.produced[0].batches
        return [
            decode_batch((self._folder / f"{counted.offset}-{number}").read_bytes())
            for number in range(count)
        ]


def _rows(keys: pa.StringArray, shards: npt.NDArray[np.int32], ordering: int) -> pa.RecordBatch:
    count = len(keys)
    codes = pa.array(np.zeros(count, np.int32))
    columns = [
        keys,
        pa.array(shards),
        pa.DictionaryArray.from_arrays(codes, pa.array([""])),
        pa.DictionaryArray.from_arrays(codes, pa.array(["00000000-0000-4000-8000-000000000000-0"])),
        pa.array(np.full(count, ordering, np.int64)),
        pa.array(np.ones(count, np.bool_)),
        pa.array(np.full(count, int(IndexOp.UPSERT), np.int8)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INDEX_COLUMNS)
