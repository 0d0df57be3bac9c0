"""A message type from a descriptor file (`protoc --include_imports --descriptor_set_out=…`)."""

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
        found = pool.FindMessageTypeByName(name)
    except KeyError:
        raise SetupError(
            f"input.protobuf.message: {descriptor} has no message {name}: give its name with the package"
        ) from None
    made: type[Message] = message_factory.GetMessageClass(found)
    return made


def message_names(descriptor: Path) -> list[str]:
    """Full names of the file's outermost messages, without Google's own. Raises SetupError."""
    names = []
    for file in _files(descriptor).file:
        prefix = f"{file.package}." if file.package else ""
        if file.package != "google" and not prefix.startswith("google."):
            names += [prefix + each.name for each in file.message_type]
    return names


def message_indexes(descriptor: Any) -> list[int]:
    """Where a message stands in its file, as Confluent's wire format says it: from the outermost inwards."""
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
    left = {each.name: each for each in _files(file).file}
    added: set[str] = set()
    while left:
        # protoc writes imports first; another order is served as well.
        ready = [each for each in left.values() if added.issuperset(each.dependency)]
        if not ready:
            missing = {name for each in left.values() for name in each.dependency} - added - left.keys()
            lacking = ", ".join(sorted(missing)) or "an order of imports"
            raise SetupError(
                f"input.protobuf.descriptor: {file} lacks {lacking}: make it with protoc --include_imports"
            )
        for each in ready:
            try:
                pool.Add(each)
            except TypeError as error:
                raise SetupError(f"input.protobuf.descriptor: {file}: {error}") from None
            added.add(each.name)
            del left[each.name]
    return pool
