"""A registry asked through Confluent's own client. No retries and no cache here: who asks has both, with
limits.

The addresses come from the configuration alone; redirects are not followed. Credentials go to the client and
nowhere else: no error of this module shows a setting but the address, which holds none.
"""

from __future__ import annotations

from typing import Any, Final

from stream_runtime.config.model import SchemaRegistryConfig
from stream_runtime.schema_registry.ports import (
    RegistrySettingsError,
    RegistryUnavailableError,
    StoredSchema,
    UnknownSchemaError,
)

# The registry's own "not found" codes: subject, version, schema. A 404 of anything else on the way has none.
_NOT_FOUND: Final = frozenset({40401, 40402, 40403})
_REFERENCES_MAX: Final = 100
_DETAIL_CHARACTERS_MAX: Final = 300


class ConfluentSchemaSource:
    """The `SchemaSource` of real registries; several addresses are tried in their order."""

    def __init__(self, config: SchemaRegistryConfig) -> None:
        """Raises RegistrySettingsError."""
        # Here, not above: an HTTP client that only those with a registry load.
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._url = config.url
        try:
            self._client: Any = SchemaRegistryClient(
                {**config.settings, "timeout": config.timeout_ms / 1000, "max.retries": 0}
            )
        except (ValueError, TypeError, OSError) as error:
            raise RegistrySettingsError(f"input.schema_registry: {error}") from None

    def fetch(self, schema_id: int) -> StoredSchema:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            schema = self._client.get_schema(schema_id)
            return StoredSchema(
                schema.schema_type or "AVRO", schema.schema_str or "", self._references(schema)
            )
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _NOT_FOUND:
                raise UnknownSchemaError(f"the schema registry has no schema {schema_id}") from None
            raise self._unavailable(f"HTTP {error.http_status_code}: {error.error_message}") from None
        except Exception as error:
            # Whatever broke on the way (transport, TLS, a proxy's page instead of JSON): no answer.
            raise self._unavailable(f"{type(error).__name__}: {error}") from None
        finally:
            # It keeps every schema for ever otherwise.
            self._client.clear_caches()

    def close(self) -> None:
        self._client.close()

    def _references(self, schema: Any) -> tuple[str, ...]:
        texts: dict[tuple[str, int], str] = {}
        self._collect(schema, texts, ())
        return tuple(texts.values())

    def _collect(self, schema: Any, texts: dict[tuple[str, int], str], path: tuple[Any, ...]) -> None:
        for reference in schema.references or ():
            named = (reference.subject, reference.version)
            if named in texts or named in path:
                continue
            if len(texts) + len(path) >= _REFERENCES_MAX:
                raise ValueError(f"more than {_REFERENCES_MAX} references")
            found = self._client.get_version(*named).schema
            self._collect(found, texts, (*path, named))
            texts[named] = found.schema_str or ""

    def _unavailable(self, what: str) -> RegistryUnavailableError:
        return RegistryUnavailableError(f"schema registry {self._url}: {what[:_DETAIL_CHARACTERS_MAX]}")
