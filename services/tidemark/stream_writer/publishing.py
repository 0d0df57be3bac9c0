"""A file of the epoch is prepared behind the attempt's fence; where one is visible already, it is taken.

Which attempt of which task made a file never matters: names and contents follow from the epoch alone. Whether
a prepared file is visible at once is the storage's business; the coordinator publishes what is not.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow.parquet as pq

from tidemark.hudi_format.commit.markers import Marker, create_marker_list
from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError, TimelineConflictError
from tidemark.hudi_format.log_file import read_blocks
from tidemark.hudi_format.publication.port import Attempt
from tidemark.hudi_format.publication.tickets import Ticket

_THREADS: Final = 8
_WAITING_MAX: Final = 16
Asked = ParamSpec("Asked")
Given = TypeVar("Given")


class Publishers:
    """Publishes files side by side while the next ones are made: most of a small file's time is waiting for
    the disk, and a journal commits what waits together. For one task; used by one thread.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS)
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Publishers:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Returns when nothing is published any more; after an error, what has not begun never will be."""
        self._pool.shutdown(cancel_futures=error is not None)

    def submit(
        self, publish: Callable[Asked, Given], *asked: Asked.args, **named: Asked.kwargs
    ) -> Future[Given]:
        """Waits while too many files wait, which bounds their memory. May raise an earlier file's error."""
        if len(self._waiting) >= _WAITING_MAX:
            self._waiting.popleft().result()
        begun = self._pool.submit(publish, *asked, **named)
        self._waiting.append(begun)
        return begun


def publish_markers(by: Attempt, instant: str, number: int, announced: Sequence[Marker]) -> None:
    """The markers of all data files that one data partition gets, before any of them. ``number`` is the
    partition's. Raises FencedOutError, and CorruptFileError when an earlier try announced other files.
    """
    try:
        create_marker_list(by, instant, number, announced)
    except TimelineConflictError as error:
        raise CorruptFileError(str(error)) from error


def prepare_file(by: Attempt, path: str, data: bytes) -> Ticket:
    """Prepares the file, or checks the one that an earlier try made visible; the ticket has its size.

    Raises CorruptFileError when that file does not hold what this try would have written.
    """
    try:
        return by.prepare(path, data)
    except AlreadyExistsError:
        found = by.storage.read(path)
        if _shape(path, found) != _shape(path, data):
            raise CorruptFileError(
                f"{path} was published before with other content ({len(found)} bytes, now {len(data)})"
            ) from None
        return Ticket(path, len(found))


def _shape(path: str, data: bytes) -> object:
    """What two tries have in common although a library's version may differ in the bytes."""
    if path.endswith(".parquet"):
        metadata = pq.read_metadata(io.BytesIO(data))
        return metadata.num_rows, metadata.num_columns
    return [(block.block_type, len(block.content)) for block in read_blocks(data, path)]
