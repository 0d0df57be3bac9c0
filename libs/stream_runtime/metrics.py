"""Counters, gauges and histograms with one naming scheme, and their exposition over HTTP.

Names are `tidemark_<service>_<what>_<unit>`; counters end in `_total` (prometheus_client adds it), times are
seconds, sizes bytes. Which table a process serves is in `tidemark_<service>_info`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from threading import Thread
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, start_http_server

from stream_runtime.config.model import Address
from stream_runtime.errors import ErrorKind, StreamRuntimeError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
LATENCY_BUCKETS_S: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
)
LABELS_MAX: Final = 4


class MetricsError(StreamRuntimeError):
    """A metric's name or labels break the scheme, or the address cannot be listened on."""

    kind = ErrorKind.INVALID


class Metrics:
    """The metrics of one service for one table; each name can be made once.

    A metric without labels is used directly; one with labels by `.labels(...)`, as in prometheus_client.
    """

    def __init__(self, service: str, table: str) -> None:
        self._service = service
        self.registry = CollectorRegistry()
        info = Info(f"tidemark_{self._checked(service)}", "What this process serves", registry=self.registry)
        info.info({"table": table})

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(self._name(name), help_text, self._labels(labels), registry=self.registry)

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(self._name(name), help_text, self._labels(labels), registry=self.registry)

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        return Histogram(
            self._name(name), help_text, self._labels(labels), registry=self.registry, buckets=buckets
        )

    def serve(self, address: Address) -> MetricsServer:
        """Starts `http://address/metrics`. Port 0 takes a free one. Raises MetricsError when it cannot
        listen.
        """
        try:
            server, thread = start_http_server(address.port, address.host, self.registry)
        except OSError as error:
            raise MetricsError(
                f"cannot serve metrics on {address}: {error.strerror}; set services.metrics to a free address"
            ) from None
        return MetricsServer(server, thread, Address(address.host, server.server_port))

    def _name(self, name: str) -> str:
        return f"tidemark_{self._service}_{self._checked(name)}"

    @staticmethod
    def _checked(name: str) -> str:
        if not _NAME.fullmatch(name):
            raise MetricsError(f"metric name {name!r}: lower case letters, digits and _ only")
        return name

    def _labels(self, labels: Sequence[str]) -> Sequence[str]:
        # Each combination of values is a time series: labels are for a handful of values.
        if len(labels) > LABELS_MAX:
            raise MetricsError(f"at most {LABELS_MAX} labels, not {', '.join(labels)}")
        return [self._checked(label) for label in labels]


class MetricsServer:
    """A running exposition; `address` is where it listens."""

    def __init__(self, server: WSGIServer, thread: Thread, address: Address) -> None:
        self._server = server
        self._thread = thread
        self.address = address

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)
