"""The details of a client's call, with some of them replaced: what interceptors hand on."""

from __future__ import annotations

from typing import Any

import grpc


class CallDetails(grpc.ClientCallDetails):
    """A copy of `details`; `timeout_s` and `metadata` replace the call's own where they are given."""

    def __init__(
        self, details: Any, *, timeout_s: float | None = None, metadata: list[tuple[str, str]] | None = None
    ) -> None:
        self.method = details.method
        self.timeout = details.timeout if timeout_s is None else timeout_s
        self.metadata = details.metadata if metadata is None else tuple(metadata)
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression
