"""librdkafka's log lines: forwarded to Python's logging, and watched for lost connections.

A lost connection is logged and nothing else: the client reconnects, repeats its request and reports success.
For the end of a transaction that is the one sign of a request that may still be under way (ARCHITECTURE.md
section 4).
"""

from __future__ import annotations

import logging
from typing import Final

_FORWARD: Final = logging.getLogger("tidemark.kafka")
_LOST: Final = ("disconnect", "connection closed", "timed out", "receive failed", "send failed")
# Properties of producers given to consumers and the other way round: the kafka: section serves both.
_NOISE: Final = frozenset({"CONFWARN"})


class ConnectionLog:
    """Given to librdkafka as its `logger`. Served in the thread that polls the client."""

    def __init__(self, client: str) -> None:
        self._client = client
        self.losses = 0
        """How often a connection was logged as lost or a request as timed out."""

    def log(self, level: int, _format: str, facility: str, _handle: str, line: str) -> None:
        """The call that confluent-kafka makes for each line."""
        if facility in ("FAIL", "REQTMOUT", "ERROR", "CLOSE") and any(sign in line.lower() for sign in _LOST):
            self.losses += 1
        if facility not in _NOISE:
            # What librdkafka calls an error is a connection that it opens again by itself.
            _FORWARD.log(
                min(level, logging.WARNING), "client=%s facility=%s %s", self._client, facility, line
            )
