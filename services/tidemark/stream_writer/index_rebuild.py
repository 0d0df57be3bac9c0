"""The two halves of the Spark job that builds a record index: rows become entries, entries become files.

Between them Spark's shuffle brings the entries of a shard together. What it moves are a few large pieces of
Arrow bytes for each shard, not rows. The halves know nothing of Spark: `job` calls them in its workers.

Each task over rows also sends the number and sum of its entries, as if that were a piece of shard 0. The task
of that shard hands it on: whoever ordered the job compares the sums of rows and files (`whole_build`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import EMPTY, added
from tidemark.hudi_format.publication.locate import service_files_of
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries
from tidemark.hudi_format.table_services.rebuilding.documents import RowsTally, encode
from tidemark.hudi_format.table_services.rebuilding.shard_files import ShardWriter, entries_digest
from tidemark.hudi_format.table_services.rebuilding.slice_entries import SliceEntries

_PIECE_BYTES: Final = 256 << 10
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class RebuildJob(msgspec.Struct, frozen=True):
    """What every task has to know. ``paths``: of each shard's new base file, by its number. ``token``: of the
    service action whose files they are. ``memory_bytes``: what a task of the second half may take.
    """

    table: str
    name: str
    schema: str
    instant: str
    paths: tuple[str, ...]
    token: str
    memory_bytes: int

    @property
    def shards(self) -> int:
        """The number of shards of the new index."""
        return len(self.paths)


def run_rows(job: bytes, slices: bytes) -> Iterator[tuple[int, bytes]]:
    """`entry_pieces` of encoded arguments (`job_work`)."""
    return entry_pieces(_decode_job(job), msgspec.json.decode(slices, type=list[FileSlice]))


def run_shards(job: bytes, number: int, tasks: int, pieces: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """`shard_files` of the shards with the remainder ``number`` among so many ``tasks``."""
    decoded = _decode_job(job)
    return shard_files(decoded, range(number, decoded.shards, tasks), pieces)


def job_work(slices: Sequence[FileSlice], tasks: int) -> list[bytes]:
    """The slices, dealt out to so many ``tasks`` at most; none is empty."""
    parts = (list(slices[number::tasks]) for number in range(min(tasks, len(slices))))
    return [msgspec.json.encode(part) for part in parts]


def encode_job(job: RebuildJob) -> bytes:
    """The job for `run_rows` and `run_shards`."""
    return msgspec.json.encode(job)


def _decode_job(data: bytes) -> RebuildJob:
    return msgspec.json.decode(data, type=RebuildJob)


def entry_pieces(job: RebuildJob, slices: Iterable[FileSlice]) -> Iterator[tuple[int, bytes]]:
    """(shard, some of its entries) of the slices' live rows, last the tally of all of them. Memory: the keys
    of one slice, and `_PIECE_BYTES` for each shard.

    Raises FileMissingError where a file was cleaned since the plan, CorruptFileError.
    """
    storage = open_storage(job.table)
    schema = TableSchema.from_avro(job.schema, job.name)
    entries = SliceEntries(storage, read_table_config(storage), schema, job.shards)
    held: dict[int, list[Entries]] = {}
    sizes: dict[int, int] = {}
    made = EMPTY
    for file_slice in slices:
        for shard, some in entries.of(file_slice):
            made = added(made, entries_digest(some))
            held.setdefault(shard, []).append(some)
            sizes[shard] = sizes.get(shard, 0) + some.nbytes
            if sizes[shard] >= _PIECE_BYTES:
                del sizes[shard]
                yield shard, _packed(held.pop(shard))
    for shard, parts in held.items():
        yield shard, _packed(parts)
    yield 0, encode(RowsTally(*made))


def shard_files(job: RebuildJob, numbers: Sequence[int], pieces: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Writes, reads back and prepares the base files of the shards ``numbers``, to which all pieces belong;
    returns a document of each, and the tallies that came. Raises as `ShardWriter.write`, and FencedOutError.
    """
    files = service_files_of(open_storage(job.table), job.token)
    with tempfile.TemporaryDirectory(prefix="tidemark-rebuild-") as folder:
        writer = ShardWriter(
            job.shards,
            job.instant,
            lambda shard: files.grow(job.paths[shard]),
            MergeBounds(job.memory_bytes, Path(folder)),
        )
        tallies: list[bytes] = []
        written = writer.write(sorted(numbers), _entries(pieces, tallies))
        return [*map(encode, written), *tallies]


def _entries(pieces: Iterable[tuple[int, bytes]], tallies: list[bytes]) -> Iterator[Entries]:
    """The entries of the pieces; tallies go to the list. An Arrow stream does not begin as JSON does."""
    for _, data in pieces:
        if data.startswith(b"{"):
            tallies.append(data)
        else:
            yield _unpacked(data)


def _packed(parts: Sequence[Entries]) -> bytes:
    entries = Entries.concat(parts)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(pa.record_batch([entries.keys, entries.values], schema=_SCHEMA))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(data: bytes) -> Entries:
    with pa.ipc.open_stream(data) as reader:
        [batch] = list(reader)
    return Entries(batch.column(0), batch.column(1))
