"""Answers of an httpx client that end at a number of bytes, whatever the server sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def bound_answers(session: Any, bytes_max: int) -> None:
    """From now on reading an answer of the `httpx.Client` raises ValueError behind so many bytes.

    Compressed answers are neither asked for nor taken: a few of their bytes may become gigabytes.
    """
    # Here, not above: only those with a schema registry load it. The client's own choice of the library.
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for part in self._stream:
                size += len(part)
                if size > bytes_max:
                    raise ValueError(f"the answer is longer than {bytes_max} bytes")
                yield part

        def close(self) -> None:
            self._stream.close()

    def bound(response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise ValueError(f"the answer is compressed ({encoding[:20]}), which was not asked for")
        response.stream = Bounded(response.stream)

    session.headers["accept-encoding"] = "identity"
    session.event_hooks = {**session.event_hooks, "response": [*session.event_hooks["response"], bound]}
