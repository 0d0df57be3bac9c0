"""`tidemark lookup --where`: the rows of a value in an indexed column, from the coordinator, else from the
table's files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from tidemark.cli.answering import answering_coordinator
from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.value_lookup import ValuePage, look_up_value

_Ask = Callable[[str, str | None, str, int], ValuePage]


def rows_of_value(
    config: TableConfigFile, config_file: str, column: str, value: str | None, token: str, limit: int
) -> dict[str, Any]:
    """The document of `lookup --where`. Raises as the client's `lookup_value`, and `look_up_value`."""
    client = answering_coordinator(config, config_file)
    with nullcontext() if client is None else client:
        ask: _Ask = (
            partial(look_up_value, open_storage(config.table.path)) if client is None else client.lookup_value
        )
        return _document(ask, column, value, token, limit)


def _document(ask: _Ask, column: str, value: str | None, token: str, limit: int) -> dict[str, Any]:
    """As many pages as the limit takes: a page may be shorter than it could be."""
    found: list[dict[str, Any]] = []
    while True:
        page = ask(column, value, token, limit - len(found))
        for key, place in zip(page.keys, page.places, strict=True):
            path, file_id = (None, None) if place is None else place
            found.append({"key": key, "partition_path": path, "file_id": file_id})
        token = page.next_token
        if not token or len(found) >= limit:
            break
    return {
        "index": page.index,
        "column": column,
        "value": value,
        "as_of": page.as_of,
        "found": found,
        "next_page_token": token or None,
    }
