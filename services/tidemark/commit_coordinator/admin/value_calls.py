"""`LookupValue`: which rows have a value in an indexed column, from the table's files."""

from __future__ import annotations

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.refusals import BadRequestError, NotIndexedColumnError
from tidemark.hudi_format.indexed_values import ValueFormError
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.value_lookup import (
    ROWS_DEFAULT,
    ROWS_MAX,
    NotIndexedError,
    PageTokenError,
    look_up_value,
)


def lookup_value(storage: Storage, request: pb.LookupValueRequest) -> pb.LookupValueResponse:
    """A page of rows. Raises BadRequestError, NotIndexedColumnError, and as `look_up_value`."""
    wanted = request.WhichOneof("wanted")
    if wanted is None or (wanted == "null" and not request.null):
        raise BadRequestError("wanted", "give a value, or null: true for the rows without one")
    value = request.value if wanted == "value" else None
    limit = min(request.page_size or ROWS_DEFAULT, ROWS_MAX)
    try:
        page = look_up_value(storage, request.column, value, request.page_token, limit)
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
    )
