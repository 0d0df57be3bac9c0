"""The port `SchemaSource` on a real registry, by Confluent's own client. It neither retries nor caches; its
caller does both, with limits.

- An answer has a limit of bytes, and all requests for one schema together have a limit of time. (The client's
  own timeout begins anew with every byte.)
- Addresses come only from the configuration; redirects are not followed.
- Credentials are given to the client only. Errors of this module show no setting but the address, which has
  no credentials in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

from tidemark.config.model import SchemaRegistryConfig
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.schema_registry.ports import (
    RegistrySettingsError,
    RegistryUnavailableError,
    StoredSchema,
    UnknownSchemaError,
)


def bound_answers(session: Any, bytes_max: int) -> None:
    """Makes an `httpx.Client` raise ValueError if an answer has more than `bytes_max` bytes.

    Compressed answers are not asked for and raise ValueError, too, because a few bytes may unpack to
    gigabytes.
    """
    # Imported here, so that only tables with a schema registry load it; the client chooses the library.
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


# The registry's codes for a missing subject, version or schema. A 404 of a proxy on the way has no such code.
_NOT_FOUND: Final = frozenset({40401, 40402, 40403})
_REFERENCES_MAX: Final = 100
_ANSWER_BYTES_MAX: Final = 8 << 20
_DETAIL_CHARACTERS_MAX: Final = 300


class ConfluentSchemaSource:
    """Implements `SchemaSource`. Several addresses are tried in their order."""

    def __init__(self, config: SchemaRegistryConfig) -> None:
        """Raises RegistrySettingsError."""
        self._url = config.url
        self._settings = {**config.settings, "timeout": config.timeout_ms / 1000, "max.retries": 0}
        # The addresses are tried one after the other, so each adds to the time.
        self._timeout_s = config.timeout_ms / 1000 * (1 + config.url.count(","))
        self._client = self._connect()

    def fetch(self, schema_id: int) -> StoredSchema:
        answers: SimpleQueue[StoredSchema | StreamRuntimeError] = SimpleQueue()
        client = self._client
        name = f"schema-{schema_id}"
        Thread(target=lambda: answers.put(self._asked(client, schema_id)), name=name, daemon=True).start()
        try:
            answer = answers.get(timeout=self._timeout_s)
        except Empty:
            # Closing its connections ends the thread.
            client.close()
            self._client = self._connect()
            raise self._unavailable(f"no whole answer within {self._timeout_s:g} s") from None
        if isinstance(answer, StreamRuntimeError):
            raise answer
        return answer

    def _connect(self) -> Any:
        # Imported here, so that only tables with a schema registry load the HTTP client.
        from confluent_kafka.schema_registry import SchemaRegistryClient

        try:
            client = SchemaRegistryClient(self._settings)
        except (ValueError, TypeError, OSError) as error:
            raise RegistrySettingsError(f"input.schema_registry: {error}") from None
        bound_answers(client._rest_client.session, _ANSWER_BYTES_MAX)
        return client

    def _asked(self, client: Any, schema_id: int) -> StoredSchema | StreamRuntimeError:
        """The schema, or the error. It does not raise, because it runs on a thread of its own."""
        try:
            return self._ask(client, schema_id)
        except StreamRuntimeError as error:
            return error

    def _ask(self, client: Any, schema_id: int) -> StoredSchema:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            schema = client.get_schema(schema_id)
            kind, text = schema.schema_type or "AVRO", schema.schema_str or ""
            if not isinstance(kind, str) or not isinstance(text, str):
                raise TypeError("the answer is not a schema")
            return StoredSchema(kind, text, self._references(client, schema))
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _NOT_FOUND:
                raise UnknownSchemaError(f"the schema registry has no schema {schema_id}") from None
            raise self._unavailable(f"HTTP {error.http_status_code}: {error.error_message}") from None
        except Exception as error:
            # Any failure on the way (transport, TLS, a proxy's page instead of JSON) is no answer.
            raise self._unavailable(f"{type(error).__name__}: {error}") from None
        finally:
            # Else the client keeps every schema for ever.
            client.clear_caches()

    def close(self) -> None:
        self._client.close()

    def _references(self, client: Any, schema: Any) -> tuple[str, ...]:
        texts: dict[tuple[str, int], str] = {}
        self._collect(client, schema, texts, ())
        return tuple(texts.values())

    def _collect(
        self, client: Any, schema: Any, texts: dict[tuple[str, int], str], path: tuple[Any, ...]
    ) -> None:
        for reference in schema.references or ():
            named = (reference.subject, reference.version)
            if named in texts or named in path:
                continue
            if len(texts) + len(path) >= _REFERENCES_MAX:
                raise ValueError(f"more than {_REFERENCES_MAX} references")
            referenced = client.get_version(*named).schema
            self._collect(client, referenced, texts, (*path, named))
            if not isinstance(referenced.schema_str, str):
                raise TypeError("the answer is not a schema")
            texts[named] = referenced.schema_str

    def _unavailable(self, what: str) -> RegistryUnavailableError:
        return RegistryUnavailableError(f"schema registry {self._url}: {what[:_DETAIL_CHARACTERS_MAX]}")
