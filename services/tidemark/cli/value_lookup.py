"""`tidemark lookup --where` and `--where-file`: the rows of some values in an indexed column, from the
coordinator, else from the table's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tidemark.cli.answering import answering_coordinator
from tidemark.config import TableConfigFile
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.value_lookup import ROWS_MAX, ValuePage, look_up_values

Ask = Callable[[str, Sequence[str | None], str, int], ValuePage]
"""(column, values, page token, limit) -> a page."""
COLUMNS: Final = pa.schema(
    [
        ("value", pa.string()),
        ("key", pa.string()),
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
    ]
)
"""Of each row, as `tidemark lookup --where-file` names them. ``partition_path`` and ``file_id`` are null
where the record index does not know the key.
"""


@contextmanager
def answering(config: TableConfigFile, config_file: str) -> Iterator[Ask]:
    """Who answers. Raises as the client's `lookup_values`, and `look_up_values`."""
    client = answering_coordinator(config, config_file)
    if client is None:
        yield partial(look_up_values, open_storage(config.table.path))
        return
    with client:
        yield client.lookup_values


def document(ask: Ask, column: str, values: Sequence[str | None], token: str, limit: int) -> dict[str, Any]:
    """The document of `lookup --where`: as many pages as the limit takes, since a page may be shorter than it
    could be.
    """
    found: list[dict[str, Any]] = []
    while True:
        page = ask(column, values, token, limit - len(found))
        rows = _rows(page, values)
        found += (rows if len(values) > 1 else rows.drop_columns(["value"])).to_pylist()
        token = page.next_token
        if not token or len(found) >= limit:
            break
    return {
        "index": page.index,
        "column": column,
        **({"value": values[0]} if len(values) == 1 else {"values": values}),
        "as_of": page.as_of,
        "found": found,
        "next_page_token": token or None,
    }


def answers(ask: Ask, column: str, batches: Iterable[pa.StringArray]) -> Iterator[pa.RecordBatch]:
    """The rows (`COLUMNS`) of batches of values, page by page; equal values of a batch are asked for once."""
    for batch in batches:
        values: list[str | None] = batch.unique().to_pylist()
        token = ""
        while True:
            page = ask(column, values, token, ROWS_MAX)
            yield _rows(page, values)
            token = page.next_token
            if not token:
                break


def _rows(page: ValuePage, values: Sequence[str | None]) -> pa.RecordBatch:
    paths = [None if place is None else place.partition_path for place in page.places]
    file_ids = [None if place is None else place.file_id for place in page.places]
    of_rows = pa.array(values, pa.string()).take(pa.array(page.values, pa.int64()))
    return pa.record_batch([of_rows, page.keys, paths, file_ids], schema=COLUMNS)
