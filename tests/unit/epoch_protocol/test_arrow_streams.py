"""What a batch message may hold: rows as they are, nothing that unpacks, no objects."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.epoch_protocol.batches import decode_batch, encode_batch
from tidemark.epoch_protocol.errors import UnknownEntryError

ROWS = pa.record_batch({"key": ["a", "b"], "value": [1, None]})


def stream(batch: pa.RecordBatch, codec: str | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@given(st.lists(st.tuples(st.text(max_size=9), st.none() | st.integers(-9, 9), st.binary(max_size=9))))
def test_batches_of_ours_come_back(rows: list[tuple[str, int | None, bytes]]) -> None:
    keys, numbers, contents = ([row[at] for row in rows] for at in range(3))
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.string()),
            "number": pa.array(numbers, pa.int64()),
            "content": pa.array(contents, pa.binary()),
        }
    )
    assert decode_batch(encode_batch(batch)).equals(batch)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batch_is_refused_before_it_unpacks(codec: str) -> None:
    zeros = pa.Array.from_buffers(pa.uint8(), 64 << 20, [None, pa.py_buffer(bytes(64 << 20))])
    bomb = stream(pa.record_batch({"zeros": zeros}), codec)
    assert len(bomb) < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(UnknownEntryError, match="compressed inside"):
        decode_batch(bomb)
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_dictionaries_come_back_but_for_compressed_ones(codec: str) -> None:
    """Partitions and file groups of our batches are dictionaries."""
    batch = pa.record_batch({"word": pa.array(["a" * 5_000, "b", "b"]).dictionary_encode(), "n": [1, 2, 3]})
    assert decode_batch(encode_batch(batch)).equals(batch)
    with pytest.raises(UnknownEntryError, match="compressed inside"):
        decode_batch(stream(batch, codec))
    # Rows that are none leave the dictionary alone to be compressed.
    with pytest.raises(UnknownEntryError, match="compressed inside"):
        decode_batch(stream(batch.slice(0, 0), codec))


@pytest.mark.parametrize("content", [b"", b"no stream", bytes(64), b"\xff" * 64])
def test_what_is_no_stream_is_refused(content: bytes) -> None:
    with pytest.raises(UnknownEntryError):
        decode_batch(content)


def test_stream_without_rows_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, ROWS.schema).close()
    with pytest.raises(UnknownEntryError):
        decode_batch(sink.getvalue())


class Trap:
    """Unpickling it would call."""

    called = False

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return setattr, (Trap, "called", True)


@pytest.mark.filterwarnings("ignore:pyarrow.PyExtensionType is deprecated:FutureWarning")
def test_objects_in_a_stream_are_not_made() -> None:
    """Arrow once unpickled a column type's metadata (its Python extension type)."""
    import pickle

    metadata = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Trap()),
    }
    field = pa.field("key", pa.string(), metadata=metadata)
    batch = pa.record_batch([pa.array(["a"])], schema=pa.schema([field]))
    with pytest.warns(RuntimeWarning, match="deserialization .* is disabled"):
        decode_batch(stream(batch))
    assert not Trap.called
