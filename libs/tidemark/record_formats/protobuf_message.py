"""Loads a message type from a descriptor file (`protoc --include_imports --descriptor_set_out=…`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from tidemark.record_formats.errors import SetupError

_FILE_BYTES_MAX: Final = 16 << 20


def message_class(descriptor: Path, name: str) -> type[Message]:
    """The class of the message of that full name. Raises SetupError."""
    pool = _pool(descriptor)
    try:
        described = pool.FindMessageTypeByName(name)
    except KeyError:
        raise SetupError(
            f"input.protobuf.message: {descriptor} has no message {name}: give its name with the package"
        ) from None
    message: type[Message] = message_factory.GetMessageClass(described)
    return message


def message_names(descriptor: Path) -> list[str]:
    """Full names of the file's outermost messages, without Google's own. Raises SetupError."""
    names = []
    for file in _files(descriptor).file:
        prefix = f"{file.package}." if file.package else ""
        if file.package != "google" and not prefix.startswith("google."):
            names += [prefix + message.name for message in file.message_type]
    return names


def message_indexes(descriptor: Any) -> list[int]:
    """The message's indexes in Confluent's wire format, from the outermost message inwards.

    Example: the second message in the third message of a file has the indexes [2, 1].
    """
    path = []
    at: Any = descriptor
    while at is not None:
        outer = at.containing_type
        siblings = at.file.message_types_by_name if outer is None else outer.nested_types_by_name
        path.append(list(siblings).index(at.name))
        at = outer
    return path[::-1]


def _files(file: Path) -> descriptor_pb2.FileDescriptorSet:
    if file.stat().st_size > _FILE_BYTES_MAX:
        raise SetupError(f"input.protobuf.descriptor: {file} is larger than {_FILE_BYTES_MAX} bytes")
    try:
        return descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())
    except DecodeError:
        raise SetupError(
            f"input.protobuf.descriptor: {file} is no FileDescriptorSet: make it with "
            "protoc --include_imports --descriptor_set_out"
        ) from None


def _pool(file: Path) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    left = {part.name: part for part in _files(file).file}
    added: set[str] = set()
    while left:
        # A file is added after its imports. protoc writes them in that order, other tools may not.
        ready = [part for part in left.values() if added.issuperset(part.dependency)]
        if not ready:
            missing = {name for part in left.values() for name in part.dependency} - added - left.keys()
            lacking = ", ".join(sorted(missing)) or "an order of imports"
            raise SetupError(
                f"input.protobuf.descriptor: {file} lacks {lacking}: make it with protoc --include_imports"
            )
        for part in ready:
            try:
                pool.Add(part)
            except TypeError as error:
                raise SetupError(f"input.protobuf.descriptor: {file}: {error}") from None
            added.add(part.name)
            del left[part.name]
    return pool
