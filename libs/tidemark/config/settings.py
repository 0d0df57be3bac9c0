"""How a dataclass's field says which key of the YAML it is, and how its value is read."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tidemark.config import values


def setting(read: values.Read, default: Any = values.REQUIRED, *, key: str | None = None) -> Any:
    """A field for `decode`; `key` where the YAML's name is not the field's."""
    metadata = {"read": read, "key": key}
    if default is values.REQUIRED:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)
