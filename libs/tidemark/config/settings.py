"""Declares a dataclass's field as a key of the YAML file, with the reader of its value."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tidemark.config import values


def setting(read: values.Read, default: Any = values.REQUIRED, *, key: str | None = None) -> Any:
    """A field that `decode` reads. ``read``: converts the YAML's value. ``key``: its name in the YAML, if
    it is not the field's. Without a ``default`` the key is required.
    """
    metadata = {"read": read, "key": key}
    if default is values.REQUIRED:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)
