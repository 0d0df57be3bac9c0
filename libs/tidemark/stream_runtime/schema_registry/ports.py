"""What Tidemark needs of a schema registry: the schema of an id. An id's schema never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as registered. `kind`: AVRO, JSON or PROTOBUF. `references`: the texts of the schemas that it
    names, each behind those that it needs itself.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()


class UnknownSchemaError(StreamRuntimeError):
    """The registry answered, and has no schema of this id."""

    kind = ErrorKind.INVALID


class RegistryUnavailableError(StreamRuntimeError):
    """The registry did not give an answer that can be judged by: nothing is known about the id."""

    kind = ErrorKind.RETRYABLE


class RegistrySettingsError(StreamRuntimeError):
    """`input.schema_registry` holds a value that the client refuses."""

    kind = ErrorKind.INVALID


class SchemaSource(Protocol):
    """Used by one thread."""

    def fetch(self, schema_id: int) -> StoredSchema:
        """Asks each time. Raises UnknownSchemaError | RegistryUnavailableError, after a bounded time."""
        ...

    def close(self) -> None: ...
