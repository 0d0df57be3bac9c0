"""Rows that a task of the epoch's job leaves to a later task, as they travel through the driver."""

from __future__ import annotations

import pyarrow as pa


def packed(rows: pa.Table) -> bytes:
    """The rows as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows.combine_chunks())
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(part: bytes) -> pa.Table:
    """The rows of a part."""
    with pa.ipc.open_stream(part) as stream:
        return stream.read_all()
