"""The messages of `LookupValue` for the client: the rows of a value in an indexed column."""

from __future__ import annotations

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.value_lookup import ValuePage


def value_request(
    table: str, column: str, value: str | None, token: str, limit: int
) -> pb.LookupValueRequest:
    """The question for a page. `value`: None for the rows without one."""
    request = pb.LookupValueRequest(table=table, column=column, page_size=limit, page_token=token)
    if value is None:
        request.null = True
    else:
        request.value = value
    return request


def value_page(column: str, answer: pb.LookupValueResponse) -> ValuePage:
    """The answer as a type."""
    at = [RecordLocation(location.partition_path, location.file_id) for location in answer.locations]
    return ValuePage(
        answer.index,
        column,
        answer.as_of or None,
        list(answer.keys),
        [at[number - 1] if number else None for number in answer.location],
        answer.next_page_token,
    )
