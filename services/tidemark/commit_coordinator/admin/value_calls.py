"""`LookupValue`: which rows have some values in an indexed column, from the table's files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.refusals import BadRequestError, NotIndexedColumnError
from tidemark.hudi_format.indexed_values import ValueFormError
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.value_lookup import (
    ROWS_DEFAULT,
    ROWS_MAX,
    VALUES_BYTES_MAX,
    VALUES_MAX,
    NotIndexedError,
    PageTokenError,
    look_up_values,
)

_NOTHING_ASKED: Final = "give a value, or null: true for the rows without one, or any with some values"


def lookup_value(storage: Storage, request: pb.LookupValueRequest) -> pb.LookupValueResponse:
    """A page of rows. Raises BadRequestError, NotIndexedColumnError, and as `look_up_values`."""
    limit = min(request.page_size or ROWS_DEFAULT, ROWS_MAX)
    try:
        page = look_up_values(storage, request.column, _values(request), request.page_token, limit)
    except NotIndexedError as error:
        raise NotIndexedColumnError(str(error)) from error
    except ValueFormError as error:
        raise BadRequestError("value", str(error)) from error
    except PageTokenError as error:
        raise BadRequestError("page_token", str(error)) from error
    numbers: dict[RecordLocation, int] = {}
    for place in page.places:
        if place is not None:
            numbers.setdefault(place, len(numbers) + 1)
    return pb.LookupValueResponse(
        index=page.index,
        as_of=page.as_of or "",
        locations=[
            pb.LookupValueResponse.Location(partition_path=place.partition_path, file_id=place.file_id)
            for place in numbers
        ],
        keys=page.keys,
        location=[0 if place is None else numbers[place] for place in page.places],
        next_page_token=page.next_token,
        wanted=page.values if request.WhichOneof("wanted") == "any" else [],
    )


def _values(request: pb.LookupValueRequest) -> Sequence[str | None]:
    """What is asked for; None for the rows without a value. Raises BadRequestError."""
    wanted = request.WhichOneof("wanted")
    if wanted == "value":
        return [request.value]
    if wanted == "any":
        values: list[str | None] = [*request.any.values, *([None] if request.any.null else [])]
        size = sum(len(value.encode()) for value in request.any.values)
        if len(values) > VALUES_MAX or size > VALUES_BYTES_MAX:
            raise BadRequestError(
                "any",
                f"{len(values)} values of {size} bytes; at most {VALUES_MAX} of {VALUES_BYTES_MAX} bytes can "
                "be asked for at once",
            )
        if values:
            return values
    if wanted == "null" and request.null:
        return [None]
    raise BadRequestError("wanted", _NOTHING_ASKED)
