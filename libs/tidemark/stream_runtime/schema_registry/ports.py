"""What Tidemark needs of a schema registry: the schema of an id. The schema of an id never changes."""

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
    """A registered schema. `kind`: AVRO, JSON or PROTOBUF. `references`: the texts of the schemas that it
    refers to, in an order in which each comes after those to which it refers itself.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()


class UnknownSchemaError(StreamRuntimeError):
    """The registry answered that it has no schema of this id."""

    kind = ErrorKind.INVALID


class RegistryUnavailableError(StreamRuntimeError):
    """The registry gave no usable answer, so nothing is known about the id."""

    kind = ErrorKind.RETRYABLE


class RegistrySettingsError(StreamRuntimeError):
    """`input.schema_registry` has a value that the client refuses."""

    kind = ErrorKind.INVALID


class SchemaSource(Protocol):
    """A schema registry. Used by one thread."""

    def fetch(self, schema_id: int) -> StoredSchema:
        """The schema of an id. Asks the registry at each call, for a bounded time. Raises UnknownSchemaError
        | RegistryUnavailableError.
        """
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...
