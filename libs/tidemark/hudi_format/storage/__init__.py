"""File access under a table's base folder: the `Storage` protocol and its implementations."""

from tidemark.hudi_format.storage.base import (
    FileContent,
    FileInfo,
    Listing,
    Storage,
    join_path,
    name_of,
    parent_of,
)
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.storage.locate import open_storage

__all__ = [
    "FileContent",
    "FileInfo",
    "Listing",
    "LocalStorage",
    "Storage",
    "join_path",
    "name_of",
    "open_storage",
    "parent_of",
]
