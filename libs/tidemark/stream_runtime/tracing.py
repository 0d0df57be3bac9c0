"""Sends traces of epochs over OTLP (OpenTelemetry) if an endpoint is set; else imports and sends nothing.

There is one trace for each attempt at an epoch. The ids of the trace and of its root span are hashes of
table, epoch, attempt and instant. So each service computes them by itself, and none has to send them to
another. A span is sent when it has ended.

If the collector does not answer, only spans are lost: a thread of the SDK sends them from a bounded queue,
which drops the oldest when it is full. The `*_traces` modules of the services decide which spans there are.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidemark.config.model import TableConfigFile

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_QUEUE_MAX: Final = 2_048
_BATCH_MAX: Final = 256
_SEND_EVERY_MS: Final = 1_000
_CALL_TIMEOUT_S: Final = 5
_CLOSE_WAIT_S: Final = 2.0
_EVENTS_MAX: Final = 64
_NS_PER_MS: Final = 1_000_000
_log = logging.getLogger("tidemark.traces")


class AttemptKey(NamedTuple):
    """The names of an attempt, which all services know. `instant` is None for an epoch without rows."""

    table: str
    epoch: int
    attempt: int
    instant: str | None


@dataclass(frozen=True)
class SpanEvent:
    """An event at one moment of a span; `at_ms` in milliseconds since 1970."""

    name: str
    at_ms: float
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SpanFacts:
    """A span and the spans inside it; times in milliseconds since 1970. `failed`: the reason, None if it did
    not fail.
    """

    name: str
    began_ms: float
    ended_ms: float
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    failed: str | None = None
    children: Sequence[SpanFacts] = ()


class Traces:
    """Takes the spans of attempts. This base class drops them; it is used when no endpoint is set."""

    enabled = False

    def root(self, key: AttemptKey, span: SpanFacts) -> None:
        """Sends the span of the whole attempt. Only the coordinator calls it."""

    def part(self, key: AttemptKey, span: SpanFacts) -> None:
        """Sends a span of a part of the attempt, as a child of the attempt's root span."""

    def close(self) -> None:
        """Sends the spans that wait in the queue, for two seconds at most. Repeatable."""


NO_TRACES: Final = Traces()


def open_traces(config: TableConfigFile, service: str, env: Mapping[str, str] | None = None) -> Traces:
    """Traces to the endpoint of `telemetry.otlp_endpoint`, or else of OpenTelemetry's environment variables;
    `NO_TRACES` without one. The connection is opened with the first span.
    """
    env = os.environ if env is None else env
    endpoint = config.telemetry.otlp_endpoint or next(filter(None, map(env.get, _ENDPOINTS)), None)
    if endpoint is None or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NO_TRACES
    return OtlpTraces(endpoint, service, config.table.name)


def trace_id(key: AttemptKey) -> int:
    """The id of the attempt's trace: 128 bits of a hash of the key."""
    return int.from_bytes(_digest("trace", key)[:16], "big")


def root_span_id(key: AttemptKey) -> int:
    """The id of the trace's root span: 64 bits of a hash of the key."""
    return int.from_bytes(_digest("root", key)[:8], "big")


def _digest(kind: str, key: AttemptKey) -> bytes:
    return hashlib.sha256(repr((kind, *key)).encode()).digest()


class OtlpTraces(Traces):
    """Thread-safe; `root` and `part` return at once."""

    enabled = True

    def __init__(self, endpoint: str, service: str, table: str) -> None:
        self._names = (endpoint, service, table)
        self._lock = threading.Lock()
        self._tracer: Any = None
        self._provider: Any = None
        self._exporter: Any = None
        self._ids: Any = None

    def _open(self) -> None:
        """Starts the SDK with the first span and not earlier, because the exporter starts gRPC's threads and
        the writer forks Spark's JVM at its start: a fork of a process with gRPC's threads is not safe.
        """
        if self._provider is not None:
            return
        endpoint, service, table = self._names
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

        class Ids(IdGenerator):
            """Gives the next span the ids in `next` if they are set, else random ones."""

            def __init__(self) -> None:
                self.next: tuple[int, int] | None = None
                self._random = RandomIdGenerator()

            def generate_trace_id(self) -> int:
                return self.next[0] if self.next is not None else self._random.generate_trace_id()

            def generate_span_id(self) -> int:
                return self.next[1] if self.next is not None else self._random.generate_span_id()

        _say_once_a_minute()
        self._ids = Ids()
        resource = Resource.create({"service.name": f"tidemark-{service}", "tidemark.table": table})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        plain = endpoint.startswith("http://")
        self._exporter = OTLPSpanExporter(endpoint, insecure=plain, timeout=_CALL_TIMEOUT_S)
        sender = BatchSpanProcessor(self._exporter, _QUEUE_MAX, _SEND_EVERY_MS, _BATCH_MAX)
        self._provider.add_span_processor(sender)
        self._tracer = self._provider.get_tracer("tidemark")
        _log.info("traces go to %s", endpoint)

    def root(self, key: AttemptKey, span: SpanFacts) -> None:
        self._safely(lambda: self._send_root(key, span))

    def part(self, key: AttemptKey, span: SpanFacts) -> None:
        self._safely(lambda: self._send_part(key, span))

    def _safely(self, send: Callable[[], None]) -> None:
        """Any error here (for instance a missing certificate) switches traces off. The service goes on."""
        if not self.enabled:
            return
        try:
            with self._lock:
                self._open()
                send()
        except Exception as error:
            self.enabled = False
            _log.warning("traces are switched off until the next start: %s: %s", type(error).__name__, error)

    def _send_root(self, key: AttemptKey, span: SpanFacts) -> None:
        self._ids.next = (trace_id(key), root_span_id(key))
        try:
            made = self._start(span, None, _of(key))
        finally:
            self._ids.next = None
        self._fill(made, span)

    def _send_part(self, key: AttemptKey, span: SpanFacts) -> None:
        from opentelemetry import trace

        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        above = trace.SpanContext(trace_id(key), root_span_id(key), is_remote=True, trace_flags=flags)
        self._fill(self._start(span, trace.NonRecordingSpan(above), _of(key)), span)

    def close(self) -> None:
        if self._provider is None:
            return
        # On a thread of its own: a collector that does not answer must not delay the end of the service.
        closing = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        closing.start()
        closing.join(_CLOSE_WAIT_S)
        if closing.is_alive():
            # Without this its threads would try each batch of the queue for seconds more.
            self._exporter.shutdown()

    def _start(self, span: SpanFacts, above: Any, attributes: Mapping[str, Any]) -> Any:
        from opentelemetry import context, trace

        inside = context.Context()
        if above is not None:
            inside = trace.set_span_in_context(above, inside)
        return self._tracer.start_span(
            span.name, inside, attributes={**span.attributes, **attributes}, start_time=_ns(span.began_ms)
        )

    def _fill(self, made: Any, span: SpanFacts) -> None:
        from opentelemetry.trace import Status, StatusCode

        for event in span.events[:_EVENTS_MAX]:
            made.add_event(event.name, dict(event.attributes), _ns(event.at_ms))
        for child in span.children:
            self._fill(self._start(child, made, {}), child)
        if span.failed is not None:
            made.set_status(Status(StatusCode.ERROR, span.failed[:1_000]))
        made.end(_ns(max(span.ended_ms, span.began_ms)))


def _of(key: AttemptKey) -> dict[str, Any]:
    named = {"table": key.table, "epoch": key.epoch, "attempt": key.attempt, "instant": key.instant}
    return {f"tidemark.{name}": value for name, value in named.items() if value is not None}


def _ns(at_ms: float) -> int:
    return int(at_ms * _NS_PER_MS)


class _Seldom(logging.Handler):
    """Passes at most one line a minute on to our log, as a warning."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if record.created >= self._until:
            self._until = record.created + 60.0
            self._say("traces cannot be sent, everything else goes on: %s", record.getMessage())


def _say_once_a_minute() -> None:
    """Has the SDK's loggers pass one line a minute. The SDK logs every failed call, which would otherwise go
    to stderr line by line.
    """
    logger = logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [_Seldom(_log.warning)], False
