"""A collector of OpenTelemetry spans as a test needs one: takes them over gRPC and keeps them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc


@dataclass(frozen=True)
class Received:
    """One span; ids in hexadecimal, times in epoch nanoseconds."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    failed: str


class Receiver(pb_grpc.TraceServiceServicer):
    """`endpoint` is what `telemetry.otlp_endpoint` takes."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._spans: list[Received] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the stub names it
        with self._lock:
            for resource in request.resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self._spans += [_received(service, span) for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    def traces(self) -> dict[str, list[Received]]:
        """What came so far, by trace, in the order of their beginnings."""
        found: dict[str, list[Received]] = defaultdict(list)
        with self._lock:
            for span in sorted(self._spans, key=lambda each: each.began_ns):
                found[span.trace].append(span)
        return dict(found)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port."""
    server = grpc.server(ThreadPoolExecutor(4))
    port = server.add_insecure_port("127.0.0.1:0")
    receiver = Receiver(f"http://127.0.0.1:{port}")
    pb_grpc.add_TraceServiceServicer_to_server(receiver, server)
    server.start()
    try:
        yield receiver
    finally:
        server.stop(1.0).wait()


def _received(service: str, span: Any) -> Received:
    return Received(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        events=[(event.name, _values(event.attributes)) for event in span.events],
        failed=span.status.message,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
