"""Names of the admin API: methods with what goes in and out, fields with number and type."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from tidemark.admin.v1 import admin_pb2


def admin_api() -> set[str]:
    """Of `proto/tidemark/admin/v1`, one line a name."""
    described = FileDescriptorProto()
    admin_pb2.DESCRIPTOR.CopyToProto(described)
    return names_of(described)


def names_of(file: FileDescriptorProto) -> set[str]:
    """A field's line has its number and its type: another number or type is another line."""
    package = f".{file.package}."
    found = {f"message {line}" for message in file.message_type for line in _message(message, package)}
    found |= {
        f"enum {enum.name}.{value.name} = {value.number}" for enum in file.enum_type for value in enum.value
    }
    for service in file.service:
        for method in service.method:
            asked = ("stream " if method.client_streaming else "") + method.input_type.removeprefix(package)
            stream = "stream " if method.server_streaming else ""
            answer = f"{stream}{method.output_type.removeprefix(package)}"
            found.add(f"method {file.package}.{service.name}/{method.name}({asked}) returns ({answer})")
    return found


def _message(message: DescriptorProto, package: str, outer: str = "") -> Iterator[str]:
    name = f"{outer}{message.name}"
    yield name
    for field in message.field:
        yield f"{name}.{field.name} = {field.number}: {_type(field, package)}"
    for value in (value for enum in message.enum_type for value in enum.value):
        yield f"{name}.{value.name} = {value.number}"
    for nested in message.nested_type:
        yield from _message(nested, package, f"{name}.")


def _type(field: FieldDescriptorProto, package: str) -> str:
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    named = field.type_name.removeprefix(package) or kind
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {named}"
    return f"optional {named}" if field.proto3_optional else named
