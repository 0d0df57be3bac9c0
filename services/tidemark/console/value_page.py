"""The messages of `LookupValue` for the client: the rows of some values in an indexed column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.console.errors import CliError
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.value_lookup import ValuePage
from tidemark.stream_runtime.rpc.errors import RpcError


def value_request(
    table: str, column: str, values: Sequence[str | None], token: str, limit: int
) -> pb.LookupValueRequest:
    """The question for a page. `values`: None for the rows without one, behind all others. One value is asked
    for as former coordinators know it.
    """
    request = pb.LookupValueRequest(table=table, column=column, page_size=limit, page_token=token)
    texts = [value for value in values if value is not None]
    if None in values[:-1]:
        raise ValueError("None has to be the last one of the values")
    if len(values) > 1:
        request.any.values.extend(texts)
        request.any.null = None in values
    elif texts:
        request.value = texts[0]
    else:
        request.null = True
    return request


def asked_page(
    ask: Callable[[pb.LookupValueRequest], pb.LookupValueResponse], request: pb.LookupValueRequest
) -> ValuePage:
    """The answer as a type. Raises CliError where a former coordinator does not know the question."""
    try:
        answer = ask(request)
    except RpcError as error:
        if request.WhichOneof("wanted") == "any" and "wanted" in dict(error.info.violations):
            raise CliError(
                "the coordinator knows no look-ups of several values: ask for one, or start this version"
            ) from error
        raise
    at = [RecordLocation(location.partition_path, location.file_id) for location in answer.locations]
    return ValuePage(
        answer.index,
        request.column,
        answer.as_of or None,
        list(answer.keys),
        list(answer.wanted) or [0] * len(answer.keys),
        [at[number - 1] if number else None for number in answer.location],
        answer.next_page_token,
    )
